"""topics.toml is complete, and the generated AsyncAPI document says the same."""

from __future__ import annotations

import json
import re
from datetime import datetime
from pathlib import Path
from typing import Any

import jsonschema
import msgspec
import pytest

from connectors.publish.encoding import RecordEncoding
from pipeline.generated.examples.catalogue import EXAMPLES
from pipeline.generated.records import RECORDS, RECORDS_OF_TOPIC
from pipeline.generated.topics_file import load_topics
from schemas.events import Batch, EventsRecord
from schemas.settings import Kafka
from tests.support.checkout import ROOT
from tests.support.client_partition import client_partition

TOPICS = load_topics()
DOCUMENT = json.loads((ROOT / "schemas" / "generated" / "asyncapi.json").read_bytes())

KNOWN_CONFIG = {
    "cleanup.policy": re.compile(r"(delete|compact)(,(delete|compact))?"),
    "compression.type": re.compile(r"producer|zstd|lz4|snappy|gzip|uncompressed"),
    "delete.retention.ms": re.compile(r"\d+"),
    "max.compaction.lag.ms": re.compile(r"\d+"),
    "max.message.bytes": re.compile(r"\d+"),
    "message.timestamp.type": re.compile(r"CreateTime|LogAppendTime"),
    "min.cleanable.dirty.ratio": re.compile(r"0(\.\d+)?|1(\.0+)?"),
    "min.compaction.lag.ms": re.compile(r"\d+"),
    "min.insync.replicas": re.compile(r"[1-9]\d*"),
    "retention.bytes": re.compile(r"-1|\d+"),
    "retention.ms": re.compile(r"-1|\d+"),
    "segment.bytes": re.compile(r"\d+"),
    "segment.ms": re.compile(r"\d+"),
}
"""Topic configuration of Apache Kafka as far as it can make sense here."""


BATCH_FIELDS = ["seq", "ts", "received_at", "events", "engine_events", "replayed"]
"""Of `kvlens.events.v1`, for as long as it is called v1."""


def resolved(reference: str) -> Any:
    """The part of the document that a `#/...` reference names."""
    found: Any = DOCUMENT
    for step in reference.removeprefix("#/").split("/"):
        found = found[step]
    return found


def name_of(record: type) -> str:
    return record.__name__


def references(value: Any) -> list[str]:
    if isinstance(value, dict):
        own = [value["$ref"]] if isinstance(value.get("$ref"), str) else []
        return own + [found for item in value.values() for found in references(item)]
    return [found for item in value for found in references(item)] if isinstance(value, list) else []


def test_names_are_unique_lowercase_and_end_in_a_version() -> None:
    names = [topic.name for topic in TOPICS.values()]
    assert len(names) == len(set(names))
    for name in names:
        assert re.fullmatch(r"[a-z]+(\.[a-z]+)*\.v\d+", name), name


@pytest.mark.parametrize("table", TOPICS)
def test_topic_is_complete(table: str) -> None:
    topic = TOPICS[table]
    assert topic.partitions > 0
    assert topic.description
    assert topic.key
    assert topic.producers
    assert topic.consumers
    assert topic.record in [record.__name__ for record in RECORDS_OF_TOPIC[table]]
    assert "cleanup.policy" in topic.config
    for key, value in topic.config.items():
        assert key in KNOWN_CONFIG, key
        assert KNOWN_CONFIG[key].fullmatch(value), (key, value)


def test_topics_bound_to_another_have_its_partition_count() -> None:
    bound = {table: topic.same_partitions_as for table, topic in TOPICS.items() if topic.same_partitions_as}
    assert "checkpoints_replica" in bound, "state is kept by partition of the events"
    for table, other in bound.items():
        assert TOPICS[table].partitions == TOPICS[other].partitions


def test_shards_are_equal_parts_of_the_hash_space() -> None:
    partitions = TOPICS["residency"].partitions
    assert partitions & (partitions - 1) == 0, "the shard is the high bits of the hash"


def test_a_topic_with_an_unknown_key_is_refused(tmp_path: Path) -> None:
    text = (ROOT / "schemas" / "topics.toml").read_text("utf-8")
    (tmp_path / "topics.toml").write_text(text.replace("partitions = 8", "partitons = 8", 1), "utf-8")
    with pytest.raises(msgspec.ValidationError, match=r"partitons|partitions"):
        load_topics(tmp_path / "topics.toml")


def test_document_has_what_asyncapi_3_requires() -> None:
    assert DOCUMENT["asyncapi"] == "3.0.0"
    assert DOCUMENT["info"]["title"]
    assert re.fullmatch(r"\d+\.\d+\.\d+", DOCUMENT["info"]["version"])
    allowed = {
        "asyncapi",
        "id",
        "info",
        "servers",
        "defaultContentType",
        "channels",
        "operations",
        "components",
    }
    assert set(DOCUMENT) <= allowed
    for server in DOCUMENT["servers"].values():
        assert server["host"]
        assert server["protocol"] == "kafka"
        assert set(re.findall(r"\{(\w+)\}", server["host"])) == set(server["variables"])
    for operation in DOCUMENT["operations"].values():
        assert operation["action"] in {"send", "receive"}
        channel = operation["channel"]["$ref"]
        assert resolved(channel)
        assert operation["messages"]
        assert all(message["$ref"].startswith(f"{channel}/messages/") for message in operation["messages"])


def test_every_reference_resolves() -> None:
    for reference in references(DOCUMENT):
        if reference.startswith("#/"):
            assert resolved(reference) is not None
        else:
            assert (ROOT / "schemas" / "generated" / reference).is_file(), reference


def test_channels_are_the_topics() -> None:
    assert set(DOCUMENT["channels"]) == set(TOPICS)
    for table, channel in DOCUMENT["channels"].items():
        topic = TOPICS[table]
        prefix = channel["parameters"]["prefix"]["default"]
        assert channel["address"].format(prefix=prefix) == f"{Kafka().topic_prefix}.{topic.name}"
        assert channel["bindings"]["kafka"]["partitions"] == topic.partitions
        assert {DOCUMENT["operations"][f"{table}.{action}"]["action"] for action in ("send", "receive")} == {
            "send",
            "receive",
        }


def test_messages_have_content_type_key_payload_and_valid_examples() -> None:
    messages = DOCUMENT["components"]["messages"]
    assert set(messages) == {record.__name__ for record in RECORDS}
    for name, message in messages.items():
        table = next(table for table, records in RECORDS_OF_TOPIC.items() if name in map(name_of, records))
        assert message["contentType"] == f"application/{'json' if table == 'figures' else 'msgpack'}"
        assert message["bindings"]["kafka"]["key"]["description"]
        payload = message["payload"]
        assert payload["schemaFormat"].startswith("application/schema+json")
        schema = json.loads((ROOT / "schemas" / "generated" / payload["schema"]["$ref"]).read_bytes())
        assert schema["title"] == name
        assert message["examples"]
        for example in message["examples"]:
            jsonschema.Draft202012Validator(schema).validate(example["payload"])


@pytest.mark.parametrize("name", EXAMPLES["events"])
def test_the_connector_sends_the_headers_that_the_document_promises(name: str) -> None:
    record = EXAMPLES["events"][name]
    assert isinstance(record, EventsRecord)
    schema = DOCUMENT["components"]["messages"]["EventsRecord"]["headers"]
    for record_format in ("msgpack", "json"):
        encoding = RecordEncoding(Kafka(record_format=record_format))
        headers = {key: value.decode() for key, value in encoding.headers_of(record)}
        jsonschema.Draft202012Validator(schema).validate(headers)
        assert list(headers) == schema["required"]
    assert headers["ce_id"].startswith(f"vllm-0/0/{record.incarnation}/")
    at = datetime.strptime(headers["ce_time"], "%Y-%m-%dT%H:%M:%S.%f%z")
    assert at.timestamp() == pytest.approx(record.batches[0].received_at, abs=1e-6)
    if record.first_seq is not None:
        assert headers["ce_id"].endswith(f"/{record.first_seq}")


def test_examples_of_partitions_are_where_a_client_would_send_them() -> None:
    keyed = {table for table, topic in TOPICS.items() if topic.keyed}
    assert keyed == {"events", "choices", "figures"}
    for table, channel in DOCUMENT["channels"].items():
        told = channel.get("x-partition-of-key", {"examples": []})["examples"]
        assert len(told) == (3 if table in keyed else 0)
        for example in told:
            assert example["partition"] == client_partition(example["key"], example["partitions"])


def test_batches_keep_their_number_of_fields() -> None:
    """They are arrays: readers in Go, Rust and ClickHouse refuse one that is longer than they know."""
    batch = Batch(1, 2.0, 3.0, [], 4, replayed=True)
    assert len(msgspec.to_builtins(batch)) == len(BATCH_FIELDS)
    schema = json.loads((ROOT / "schemas" / "generated" / "EventsRecord.schema.json").read_bytes())
    assert [item["title"] for item in schema["$defs"]["Batch"]["prefixItems"]] == BATCH_FIELDS
    for example in EXAMPLES["events"].values():
        assert isinstance(example, EventsRecord)
        for one in msgspec.msgpack.decode(msgspec.msgpack.encode(example))["batches"]:
            assert len(one) == len(BATCH_FIELDS)


def test_every_field_of_every_record_is_explained() -> None:
    for record in RECORDS:
        schema = json.loads((ROOT / "schemas" / "generated" / f"{record.__name__}.schema.json").read_bytes())
        for part in [schema, *schema.get("$defs", {}).values()]:
            assert part["description"], part["title"]
            items = {item["title"]: item for item in part.get("prefixItems", [])}
            for name, field in {**part.get("properties", {}), **items}.items():
                assert name == "type" or field.get("description"), f"{part['title']}.{name}"
