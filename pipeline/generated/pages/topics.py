"""docs/topics.md: every Kafka topic with its key and settings, fields of records for readers, all reasons."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import msgspec

import schemas.reasons
import schemas.residency
from connectors.kafka.topics import partition_of_key
from pipeline.generated.asyncapi import PARTITION_RULE, headers_of
from pipeline.generated.examples.catalogue import EXAMPLES
from pipeline.generated.json_schema import record_schema
from pipeline.generated.pages.markdown import code, fenced, page, table
from pipeline.generated.pages.tables import column_meanings
from pipeline.generated.records import RECORDS_OF_TOPIC, Record, json_of
from pipeline.generated.source_docs import constant_docs, reason_docs
from pipeline.generated.topics_file import Topic, load_topics
from schemas.figures import TABLE_FIELD

READING = Path(__file__).with_name("reading_topics.md")
TAGS = ("type", TABLE_FIELD)
"""Fields that say which struct a map is."""
Field = tuple[str, str, str]
"""Name, type, meaning."""
DOWNSTREAM = "downstream services"
"""What `topics.toml` calls readers outside kvlens."""

INTRODUCTION = """\
Names carry the prefix `kafka.topic_prefix` (`kvlens` unless configured). `kvlens topics apply` creates what
is missing. **The number of partitions of a topic never changes**: state is bound to them.

**Values** are MessagePack maps with named fields. With `kafka.record_format = "json"` events, residency and
choices are JSON; figures always are. The header `content-type` says which. What is *packed* is bytes in
MessagePack; in JSON it is a list, and a hash 16 hexadecimal digits; None is null. JSON Schema and an AsyncAPI
document are in [`schemas/generated/`](../schemas/generated/), examples in
[`schemas/examples/current/`](../schemas/examples/current/).

**Compatibility.** Fields are only added, with a default. Ignore fields that you do not know. Fields that hold
their default are left out.

**Metadata only.** No field can hold a token id, a prompt, a cache salt or a multimodal key. Session ids and
salts are keyed hashes, if they are there."""

KEY_AND_PARTITION = """\
In {topics} the partition is `{rule}` of the key's UTF-8 bytes, as by default in Java's client, Kafka Streams,
Flink, KafkaJS, franz-go, aiokafka and kafka-python: `vllm-0` is in partition {first} of 8. librdkafka
(confluent-kafka) needs `partitioner=murmur2_random`, kafka-go its `Murmur2Balancer`; sarama and platformatic
have other hashes. In ClickHouse it is `kafkaMurmurHash(replica) % partitions`."""

HEADERS = """\
CloudEvents in binary mode: besides these `content-type` (`application/msgpack` or `application/json`),
`ce_specversion` 1.0 and `ce_type`, `kvlens.` and the name of the topic."""
FIELDS_SHOWN = ("events",)
"""Tables of `topics.toml` whose fields are on the page; for the others it links to their schemas."""
OF_KVLENS = """\
Nothing is promised to other readers; the AsyncAPI document has keys and records."""
COMMON = 2
"""A field that at least this many structs of a topic have, with one meaning, is explained once."""

ROWS_AS_JSON = """\
All fields are required: times are text, `Enum8` is one of its names. There is a
[schema](../schemas/generated/) of each: {records}."""
PACKED_CHANGES = """\
All changes in one shard between two checkpoints of an events partition: of each engine session that changed
(`sources`), by medium and group, in packed columns such as `hashes`, `kinds` and `times`."""
COLUMNS_OF = {"EngineCounters": "engine_counters"}
"""Structs -> the table whose columns have some of their fields."""
DAY = 86_400_000
EXAMPLE_SHOWN = {
    "events": "run",
}
"""Table of `topics.toml` -> the example printed on the page; the others are in their directory."""


def topics_page() -> bytes:
    """Return the page."""
    topics = load_topics()
    internal = {name: topic for name, topic in topics.items() if DOWNSTREAM not in topic.consumers}
    public = {name: topic for name, topic in topics.items() if name not in internal}
    blocks = [
        INTRODUCTION,
        READING.read_text("utf-8").strip(),
        *_key_and_partition(topics),
        "## Topics for readers",
        _overview(public),
        "## Topics of kvlens itself",
        OF_KVLENS,
        _internal(internal),
    ]
    for name, topic in public.items():
        blocks += [f"## {topic.name}", *_topic(name, topic)]
    blocks += _headers(public)
    blocks += ["## Reasons", "Every loss, skip and end has exactly one of these names.", *_reasons()]
    return page("Topics", "`schemas/topics.toml` and the structs in `schemas/`", *blocks)


def _overview(topics: dict[str, Topic]) -> str:
    head = ("Topic", "Written by", "Read by, besides you", "Partitions", "Kept", "Largest record")
    return table(
        head,
        (
            (
                f"[`{topic.name}`](#{topic.name.replace('.', '')})",
                ", ".join(topic.producers),
                ", ".join(who for who in topic.consumers if who != DOWNSTREAM),
                str(topic.partitions),
                _kept(topic),
                _mebibytes(topic, "max.message.bytes"),
            )
            for topic in topics.values()
        ),
    )


def _kept(topic: Topic) -> str:
    days = int(topic.config["retention.ms"]) // DAY
    parts = ("a day" if days == 1 else f"{days} days", _mebibytes(topic, "retention.bytes"))
    return ", ".join(filter(None, parts))


def _mebibytes(topic: Topic, setting: str) -> str:
    return f"{int(topic.config[setting]) >> 20:,} MiB" if setting in topic.config else ""


def _internal(topics: dict[str, Topic]) -> str:
    return table(
        ("Topic", "Holds", "Written by", "Read by", "Partitions", "Cleanup"),
        (
            (
                code(topic.name),
                topic.description,
                ", ".join(topic.producers),
                ", ".join(topic.consumers),
                _partitions(topic),
                topic.config["cleanup.policy"],
            )
            for topic in topics.values()
        ),
    )


def _partitions(topic: Topic) -> str:
    if not topic.same_partitions_as:
        return str(topic.partitions)
    return f"those of {code(load_topics()[topic.same_partitions_as].name)}"


def _key_and_partition(topics: dict[str, Topic]) -> list[str]:
    *several, last = (code(topic.name) for topic in topics.values() if topic.keyed)
    keyed = f"{', '.join(several)} and {last}"
    first = partition_of_key(b"vllm-0", 8)
    return [
        "## Key and partition",
        KEY_AND_PARTITION.format(topics=keyed, rule=PARTITION_RULE, first=first),
    ]


def _headers(topics: dict[str, Topic]) -> list[str]:
    """Return the section on what differs between the headers of topics."""
    names = ("ce_source", "ce_id", "ce_time")
    told = {topic.name: headers_of(name, topic) for name, topic in topics.items()}
    rows = (
        (code(topic), *(headers[name][1] for name in names)) for topic, headers in told.items() if headers
    )
    return ["## Headers", HEADERS, table(("Topic", *map(code, names)), rows)]


def _topic(name: str, topic: Topic) -> list[str]:
    blocks = [f"{topic.description}\n\n- Key: {topic.key}"]
    records = RECORDS_OF_TOPIC[name]
    if name == "figures":
        return [*blocks, ROWS_AS_JSON.format(records=", ".join(map(_rows_of, records)))]
    if name == "residency":
        return [f"{blocks[0]}\n{_schemas(records)}", PACKED_CHANGES, "Kinds of change:", _kinds()]
    if name not in FIELDS_SHOWN:
        return [f"{blocks[0]}\n{_schemas(records)}"]
    structs = [struct for record in records for struct in _with_parts(record_schema(record))]
    shared = _shared(structs)
    if shared:
        rows = ((code(field), kind, meaning) for field, kind, meaning in sorted(shared))
        blocks += ["Fields of several structs:", table(("Field", "Type", "Meaning"), rows)]
    for struct in structs:
        blocks += _struct(struct, shared)
    return [*blocks, *_example(name)]


def _kinds() -> str:
    kinds = constant_docs(schemas.residency)
    values = ((getattr(schemas.residency, kind), kind, meaning) for kind, meaning in kinds.items())
    rows = (
        (str(value), kind, meaning)
        for value, kind, meaning in values
        if value in list(schemas.residency.KINDS)
    )
    return table(("Value", "Name", "Meaning"), rows)


def _with_parts(schema: dict[str, Any]) -> list[dict[str, Any]]:
    return [schema, *_in_order_of_use(schema)]


def _shared(structs: list[dict[str, Any]]) -> frozenset[Field]:
    """Return the fields that at least `COMMON` structs have with one type and meaning."""
    found = Counter(
        (name, _type(field), _meaning(field))
        for struct in structs
        for name, field in struct.get("properties", {}).items()
        if name not in TAGS
    )
    return frozenset(field for field, count in found.items() if count >= COMMON)


def _schemas(records: Iterable[Record]) -> str:
    """Return a list that leads to the schema of each record."""
    return "\n".join(
        f"- Value: [`{record.__name__}`](../schemas/generated/{record.__name__}.schema.json)"
        for record in records
    )


def _rows_of(record: Record) -> str:
    """Return the name of a figure and the table whose rows it has."""
    (name,) = record_schema(record)["properties"][TABLE_FIELD]["enum"]
    return f"{code(record.__name__)} ({code(name)})"


def _example(name: str) -> list[str]:
    if name not in EXAMPLE_SHOWN:
        return []
    return ["Example, as JSON:", fenced("json", _compact(EXAMPLES[name][EXAMPLE_SHOWN[name]]))]


def _in_order_of_use(schema: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the structs of a record, each after the one that first refers to it."""
    parts = schema.get("$defs", {})
    ordered: list[str] = []

    def visit(value: Any) -> None:
        if isinstance(value, list):
            for item in value:
                visit(item)
        elif isinstance(value, dict):
            name = str(value.get("$ref", "")).rpartition("/")[2]
            if name and name not in ordered:
                ordered.append(name)
                visit(parts[name])
            visit(list(value.values()))

    visit({key: value for key, value in schema.items() if key != "$defs"})
    return [parts[name] for name in ordered]


def _struct(schema: dict[str, Any], shared: frozenset[Field]) -> list[str]:
    kind: list[str] = next(
        (found["enum"] for found in map(schema.get("properties", {}).get, TAGS) if found), []
    )
    title = f"### {schema['title']}" + (f" (`{kind[0]}`)" if kind else "")
    blocks = [title, schema["description"]]
    if "prefixItems" in schema:
        rows = [(item["title"], item) for item in schema["prefixItems"]]
        required = [name for name, _ in rows][: schema["minItems"]]
        blocks.append("An array; its fields come in this order:")
    else:
        rows = [(name, field) for name, field in schema["properties"].items() if name not in TAGS]
        required = schema["required"]
    explained = [(name, _type(field), _meaning(field), field) for name, field in rows]
    columns, explained = _columns(schema["title"], explained)
    cells = [
        (code(name), kind, "" if name in required else _default(field), meaning)
        for name, kind, meaning, field in explained
        if (name, kind, meaning) not in shared
    ]
    if cells:
        head = ("Field", "Type", "Default", "Meaning")
        shown = [0, 1, 2, 3] if any(cell[2] for cell in cells) else [0, 1, 3]
        blocks.append(table([head[i] for i in shown], ([cell[i] for i in shown] for cell in cells)))
    blocks += columns
    if also := [code(name) for name, kind, meaning, _ in explained if (name, kind, meaning) in shared]:
        blocks.append(f"Also {', '.join(also)}.")
    return blocks


Explained = tuple[str, str, str, dict[str, Any]]


def _columns(struct: str, fields: list[Explained]) -> tuple[list[str], list[Explained]]:
    """Return a line that names the fields that a table explains, and the other fields."""
    if struct not in COLUMNS_OF:
        return [], fields
    told = column_meanings(COLUMNS_OF[struct])
    named = ", ".join(code(field[0]) for field in fields if told.get(field[0]) == field[2])
    others = [field for field in fields if told.get(field[0]) != field[2]]
    where = f"[`{COLUMNS_OF[struct]}`](tables.md#{COLUMNS_OF[struct]})"
    return [f"Also, as in the table {where}: {named}."], others


def _meaning(field: dict[str, Any]) -> str:
    """Return what a field means; for a reason, a link to the list of its values."""
    meaning = str(field.get("description", ""))
    for name, reasons in reason_docs(schemas.reasons).items():
        listed = ", ".join(map(code, reasons))
        meaning = meaning.replace(f"Bounded: one of {listed}.", f"One of [{name}](#{name.lower()}).")
    return meaning


def _default(field: dict[str, Any]) -> str:
    return code(msgspec.json.encode(field["default"]).decode())


def _type(field: dict[str, Any]) -> str:
    if "anyOf" in field:
        parts = dict.fromkeys(_type(part) for part in field["anyOf"])
        return " or ".join(part for part in parts if part != "null")
    if "$ref" in field:
        return code(field["$ref"].rpartition("/")[2])
    if "enum" in field:
        return ", ".join(code(str(value)) for value in field["enum"])
    if "prefixItems" in field:
        return "pair of " + " and ".join(_type(item) for item in field["prefixItems"])
    if "x-packed" in field:
        return f"packed {_packed(field)}"
    if field["type"] == "array":
        item = field["items"]
        return "list of events" if "discriminator" in item else f"list of {_type(item)}"
    if field["type"] == "object":
        return f"map to {_type(field['additionalProperties'])}"
    if field.get("contentEncoding") == "base64":
        return "bytes"
    if field.get("format") == "date-time":
        return "time"
    return {"string": "text", "number": "number", "integer": "integer", "boolean": "boolean", "null": "null"}[
        field["type"]
    ]


def _packed(field: dict[str, Any]) -> str:
    """Return what packed bytes are in JSON."""
    if field["type"] == "string":
        return "hash"
    item = field["items"]
    return "names" if "enum" in item else "hashes" if "pattern" in item else f"{_type(item)}s"


def _reasons() -> list[str]:
    blocks = []
    for name, reasons in reason_docs(schemas.reasons).items():
        lines = (
            f"- {code(reason)}: {meaning}" if meaning else f"- {code(reason)}"
            for reason, meaning in reasons.items()
        )
        blocks += [f"### {name}", "\n".join(lines)]
    return blocks


def _compact(record: msgspec.Struct) -> str:
    """Return JSON with one line for each field and each batch."""
    lines = []
    for key, value in msgspec.json.decode(json_of(record)).items():
        if isinstance(value, list):
            items = ",\n    ".join(_flat(item) for item in value)
            lines.append(f'  "{key}": [\n    {items}\n  ]')
        else:
            lines.append(f'  "{key}": {_flat(value)}')
    return "{\n" + ",\n".join(lines) + "\n}"


def _flat(value: Any) -> str:
    return msgspec.json.format(msgspec.json.encode(value), indent=0).decode()
