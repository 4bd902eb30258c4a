"""What users wrote stops at the connector: planted everywhere on the wire, found nowhere behind it."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any, Literal

import clickhouse_connect
import msgspec
import pytest
from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient

from schemas.settings import Index
from tests.support.index_service import IndexProcess, index_process

encode = msgspec.msgpack.encode

SALT = "SALT-5f3c9a77"
PROMPT = "my dear aunt lives in Reykholt"
IMAGE = "IMG" + "ab12" * 8
DIGEST = b"EMBED\xffdigest\x00of-a-prompt"
SESSION = "chat-of-alice-0815"
TEXTS = {
    "salt": SALT.encode(),
    "prompt": PROMPT.encode(),
    "image": IMAGE.encode(),
    "digest": DIGEST,
    "session": SESSION.encode(),
}
TOKENS = [0x7EAC_91D3, 0x6BD7_0A35, 0x5CE1_F0A9, 0x4D9B_33C7]
SECRETS = {*TEXTS, *TOKENS}
KEY = b"KEY-of-names-2c4e81f0"

HASHES = [0xF1E2_D3C4_B5A6_9788, 0xE1D2_C3B4_A596_8778]
PARENT = 0xD1C2_B3A4_9586_7768
EXTRA_KEYS = [["adapter", [IMAGE, -7], SALT, DIGEST, PROMPT], None]
UNKNOWN = {"text": PROMPT, "ids": TOKENS, "deep": [[{SALT: [DIGEST, IMAGE]}]], IMAGE: SESSION}

FIELDS = [
    "BlockStored", HASHES, PARENT, TOKENS * 8, 16, None,
    "GPU", "adapter", EXTRA_KEYS, 0, "full_attention", None,
]  # fmt: skip
STORED = {
    "type": "BlockStored",
    "block_hashes": HASHES,
    "parent_block_hash": PARENT,
    "token_ids": TOKENS * 8,
    "block_size": 16,
    "lora_id": None,
    "medium": "GPU",
    "lora_name": "adapter",
    "extra_keys": EXTRA_KEYS,
    "group_idx": 0,
    "session_id": SESSION,
    "lookahead_token_ids": TOKENS,
    "cache_salt": SALT,
    "prompt": PROMPT,
    "from_the_future": UNKNOWN,
}
REMOVED = {
    "type": "BlockRemoved", "block_hashes": HASHES[:1], "medium": "GPU", "cache_salt": SALT, "x": UNKNOWN,
}  # fmt: skip
PAIRS = [[token, token] for token in TOKENS]

GOOD_ARRAYS = [
    *(FIELDS[:length] for length in (5, 6, 7, 8, 9, 10, 12)),
    [*FIELDS, "LOCAL", None, SESSION, TOKENS, UNKNOWN],
    ["BlockStored", HASHES, None, PAIRS, 16, None, "GPU", {"cache_salt": SALT, "more": UNKNOWN}],
    ["BlockRemoved", HASHES[:1], "GPU", 0, SALT, UNKNOWN],
]
GOOD_MAPS = [STORED, REMOVED, {"type": "BlockStored", "block_hashes": HASHES, "block_size": 16} | UNKNOWN]
CLEARED = [["AllBlocksCleared", TOKENS, PROMPT], {"type": "AllBlocksCleared", "token_ids": TOKENS, "x": SALT}]
BAD = [
    [PROMPT, TOKENS, SALT],
    {"type": PROMPT, "token_ids": TOKENS},
    {"token_ids": TOKENS, "cache_salt": SALT},
    TOKENS,
    *TOKENS,
    PROMPT,
    DIGEST,
    UNKNOWN,
    FIELDS[:4],
    ["BlockStored", TOKENS, PROMPT, TOKENS, SALT],
    ["BlockStored", [SALT, IMAGE], 5, TOKENS, 16],
    STORED | {"block_size": PROMPT},
    STORED | {"block_size": TOKENS},
    STORED | {"block_hashes": EXTRA_KEYS},
    STORED | {"block_hashes": PROMPT},
    STORED | {"parent_block_hash": PROMPT},
    STORED | {"parent_block_hash": DIGEST[:9]},
    STORED | {"medium": [SALT]},
    STORED | {"group_idx": PROMPT},
    STORED | {"group_idx": TOKENS[0]},
    STORED | {"lora_name": EXTRA_KEYS},
    STORED | {"lora_id": TOKENS},
    REMOVED | {"block_hashes": PROMPT},
    REMOVED | {"medium": UNKNOWN},
]
BAD_PAYLOADS = [
    *(
        encode(value)
        for value in (PROMPT, TOKENS, UNKNOWN, DIGEST, [PROMPT, TOKENS], {"ts": PROMPT} | UNKNOWN)
    ),
    encode([1.5, [STORED], 0])[:-1],
    encode([1.5, [FIELDS], 0]) + PROMPT.encode(),
    b"\xc1" + PROMPT.encode() + encode(TOKENS),
]
BAD_MESSAGES = [
    [PROMPT.encode()],
    [SALT.encode(), encode(TOKENS)],
    [PROMPT.encode(), SESSION.encode(), encode([1.5, [STORED], 0])],
    [PROMPT.encode(), bytes(8), encode(UNKNOWN), DIGEST],
]


def enveloped(events: list[Any]) -> Iterator[bytes]:
    now = time.time()
    yield encode([now, events, 0])
    yield encode([now, events, TOKENS[0], PROMPT, TOKENS, UNKNOWN])
    yield encode({"ts": now, "events": events, "prompt": PROMPT, "token_ids": TOKENS, "x": UNKNOWN})
    yield encode([PROMPT, events, 0])


def batches_of_one_form(events: list[Any]) -> Iterator[bytes]:
    """What an engine sends: soon decoded without a look at each event."""
    for _ in range(5):
        for event in events:
            yield encode([time.time(), [event], 0])
        yield encode([time.time(), events, 0])


def batches_of_all_kinds() -> Iterator[bytes]:
    events = [*GOOD_ARRAYS, *GOOD_MAPS, *CLEARED, *BAD]
    for event in events:
        yield from enveloped([event])
    for _ in range(3):
        yield from enveloped(events)
        yield from BAD_PAYLOADS
    # The last ones are good, so that something stays resident and the last number is in the tables.
    yield encode([time.time(), [FIELDS, STORED], 0])


def in_bytes(raw: bytes) -> set[Any]:
    """Secrets that occur in bytes: texts in any case, integers in binary of either order and in decimal."""
    folded = raw.lower()
    found: set[Any] = {name for name, text in TEXTS.items() if text.lower() in folded}
    for token in TOKENS:
        forms = (token.to_bytes(4, "big"), token.to_bytes(4, "little"), str(token).encode())
        if any(form in raw for form in forms):
            found.add(token)
    return found


def in_value(value: Any) -> set[Any]:
    """Secrets that occur anywhere in decoded data; bytes are decoded again where they can be."""
    found: set[Any] = set()
    if isinstance(value, dict):
        for pair in value.items():
            found |= in_value(list(pair))
    elif isinstance(value, list | tuple):
        for one in value:
            found |= in_value(one)
    elif isinstance(value, str):
        found = in_bytes(value.encode())
    elif isinstance(value, bytes):
        found = in_bytes(value) | in_packed(value)
    elif isinstance(value, int | float) and not isinstance(value, bool):
        found = {token for token in TOKENS if token in (value, value % 2**32)} if value == value else set()
    return found


def in_packed(raw: bytes) -> set[Any]:
    """Secrets in MessagePack, if it is that."""
    try:
        return in_value(msgspec.msgpack.decode(raw))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return set()


@dataclass
class Behind:
    """Everything that is behind the connector's sockets, by where it was found; and what went into them."""

    wire: list[list[bytes]]
    keeps: dict[str, bool]
    """Settings of the connector: what it keeps as hashes."""
    kafka: dict[str, list[bytes]] = field(default_factory=dict)
    rows: dict[str, bytes] = field(default_factory=dict)
    json_rows: dict[str, list[Any]] = field(default_factory=dict)
    said: dict[str, bytes] = field(default_factory=dict)


async def every_record(bootstrap_servers: str, prefix: str) -> dict[str, list[bytes]]:
    """Keys, values and headers of all records of all topics, aborted transactions included."""
    admin = AIOKafkaAdminClient(bootstrap_servers=bootstrap_servers)
    await admin.start()
    consumer = AIOKafkaConsumer(
        bootstrap_servers=bootstrap_servers, auto_offset_reset="earliest", fetch_max_wait_ms=50
    )
    async with consumer:
        partitions = [
            TopicPartition(topic["topic"], partition["partition"])
            for topic in await admin.describe_topics()
            if topic["topic"].startswith(prefix)
            for partition in topic["partitions"]
        ]
        consumer.assign(partitions)
        ends = await consumer.end_offsets(partitions)
        found: dict[str, list[bytes]] = {at.topic.removeprefix(f"{prefix}."): [] for at in partitions}
        for place in partitions:
            while await consumer.position(place) < ends[place]:
                for at, messages in (await consumer.getmany(timeout_ms=200)).items():
                    for message in messages:
                        headers = [part for name, value in message.headers for part in (name.encode(), value)]
                        found[at.topic.removeprefix(f"{prefix}.")] += [
                            message.key or b"",
                            message.value or b"",
                            *headers,
                        ]
    await admin.close()
    return found


KEPT = {
    "plain": {},
    "content hashes, salts": {"content_hashes": True, "forward_salts": True},
    "session ids, salts": {"forward_session_ids": True, "forward_salts": True},
}
"""What connectors keep; with session ids, nothing is scanned."""


@pytest.fixture(
    scope="module",
    params=["plain", *(pytest.param(name, marks=pytest.mark.night) for name in [*KEPT][1:])],
)
def gone_through(
    new_pipeline: Callable[..., Any],
    tmp_path_factory: pytest.TempPathFactory,
    request: pytest.FixtureRequest,
) -> tuple[Any, Behind]:
    """A pipeline whose rows are in the tables, and what it was sent."""
    keeps = KEPT[request.param]
    key_file = tmp_path_factory.mktemp("key") / "names"
    key_file.write_bytes(KEY)
    payloads = {
        "arrays": list(batches_of_one_form(GOOD_ARRAYS)),
        "maps": list(batches_of_one_form(GOOD_MAPS)),
        "mixed": list(batches_of_all_kinds()),
    }
    pipeline = new_pipeline(*payloads, session_key_file=str(key_file), **keeps)
    for command in ("work", "connect"):
        pipeline.start(command)
    pipeline.wait_subscribed()
    wire: list[list[bytes]] = []
    for message in BAD_MESSAGES:
        wire.append(message)
        pipeline.publish("mixed", message)
    for name, batches in payloads.items():
        for seq, payload in enumerate(batches):
            wire.append([f"kv@{SESSION}".encode(), seq.to_bytes(8, "big"), payload])
            pipeline.publish(name, wire[-1])
    last = {name: len(batches) - 1 for name, batches in payloads.items()}
    pipeline.wait_rows("SELECT replica, last_seq FROM {}.sources FINAL", last)
    return pipeline, Behind(wire, keeps)


@pytest.fixture(scope="module")
def behind(gone_through: tuple[Any, Behind]) -> Behind:
    pipeline, found = gone_through
    index = posting_index(pipeline)
    pipeline.wait_rows("SELECT request_id, replica FROM {}.choices FINAL", {"req-1": "mixed"})
    index.stop()
    worker, connector = pipeline.processes[:2]
    for section in ("connector", "worker"):
        found.said[f"{section} metrics"] = pipeline.metrics(section).encode()
    pipeline.finish(connector, worker)
    kafka = pipeline.settings.kafka
    found.kafka = asyncio.run(every_record(kafka.bootstrap_servers, kafka.topic_prefix))
    client = clickhouse_connect.get_client(
        dsn=pipeline.settings.clickhouse.url, autogenerate_session_id=False
    )
    tables = pipeline.query("SELECT name FROM system.tables WHERE database = '{}' AND engine != 'View'")
    for (table,) in tables:
        statement = f"SELECT * FROM {pipeline.database}.{table}"
        found.rows[table] = client.raw_query(statement, fmt="RowBinary")
        lines = client.raw_query(statement, fmt="JSONEachRow").splitlines()
        found.json_rows[table] = [json.loads(line) for line in lines]
    client.close()
    for file in pipeline.directory.rglob("*"):
        if file.is_file():
            found.said[file.name] = file.read_bytes()
    return found


CHOICE = {"request_id": "req-1", "block_hashes": HASHES, "instance_id": "mixed"}
CARELESS = {"text": PROMPT, "token_ids": TOKENS, "deep": [[{SALT: [IMAGE]}]], IMAGE: SESSION}


def posting_index(pipeline: Any) -> IndexProcess:
    """Start an index, and post a choice to it as careless as a router may write it."""
    settings = msgspec.structs.replace(pipeline.settings, index=Index(port=0, choices=True))
    index = index_process(settings, pipeline.directory, shared=pipeline.shared)
    pipeline.processes.append(index)
    body = {"model_name": "m", "choices": [CHOICE | CARELESS]} | CARELESS
    deadline = time.monotonic() + 300  # the first one compiles
    while (answer := index.ask("choices", body))[0] != 200:
        assert answer[0] == 503, answer
        assert time.monotonic() < deadline, index.said()
        time.sleep(0.2)
    for bad in ({"model_name": "m", "choices": [PROMPT]}, {"model_name": "m", "choices": [CARELESS]}):
        assert index.ask("choices", bad)[0] == 400
    return index


def places(found: Iterable[tuple[str, set[Any]]]) -> dict[str, set[Any]]:
    """Where something was found."""
    return {place: secrets for place, secrets in found if secrets}


def test_the_search_finds_every_secret_on_the_wire(behind: Behind) -> None:
    payloads = [part for message in behind.wire for part in message]
    assert set().union(*map(in_bytes, payloads)) == SECRETS
    assert set().union(*map(in_packed, payloads)) == SECRETS


@pytest.mark.parametrize("token", TOKENS)
@pytest.mark.parametrize(
    "hide", [lambda t: [t], lambda t: {"a": [{t: 1}]}, lambda t: encode([t, {"b": t}]), float, str]
)
def test_the_search_finds_a_token_wherever_it_hides(token: int, hide: Callable[[int], Any]) -> None:
    assert in_value([None, {"deep": hide(token)}]) == {token}


def test_what_was_searched_is_what_the_pipeline_wrote(behind: Behind) -> None:
    """Block hashes and names are there: the search has looked at the right things."""
    orders: dict[str, Literal["big", "little"]] = {
        "events.v1": "big",
        "residency.v1": "big",
        "checkpoints.replica.v1": "little",
    }
    # Nothing was set aside: what a connector writes can be applied.
    others = {"positions.v1", "checkpoints.fleet.v1", "set.aside.v1", "choices.v1", "figures.v1"}
    assert set(behind.kafka) == {*orders, *others}
    assert behind.kafka["set.aside.v1"] == []
    for topic, order in orders.items():
        everything = b"".join(behind.kafka[topic])
        for block in HASHES:
            assert block.to_bytes(8, order) in everything, topic
    for topic in {*orders, "positions.v1", "figures.v1"}:  # the fleet agent's bases come now and then only
        everything = b"".join(behind.kafka[topic])
        for name in (b"arrays", b"maps", b"mixed"):
            assert name in everything, topic
    assert b"adapter" in b"".join(behind.kafka["events.v1"])
    assert (b"links" in b"".join(behind.kafka["events.v1"])) == behind.keeps.get("content_hashes", False)
    for text, setting in ((SALT, "forward_salts"), (SESSION, "forward_session_ids")):
        name = blake2b(text.encode(), digest_size=8, key=KEY).hexdigest().encode()
        assert (name in b"".join(behind.kafka["events.v1"])) == behind.keeps.get(setting, False)
    for table in (
        "occupancy_10s",
        "flow_10s",
        "stream_health_10s",
        "sources",
        "occupancy_1m",
        "occupancy_1h",
    ):
        assert {row["replica"] for row in behind.json_rows[table]} == {"arrays", "maps", "mixed"}, table
        assert b"mixed" in behind.rows[table]
    choices = b"".join(behind.kafka["choices.v1"])
    assert b"req-1" in choices
    assert not any(block.to_bytes(8, order) in choices for block in HASHES for order in orders.values())
    assert [row["request_id"] for row in behind.json_rows["choices"]] == ["req-1"]
    assert b"caught up with the log" in behind.said["index.log"]
    assert b"events_undecodable" in behind.said["connect-1.log"]
    assert b"partitions assigned" in behind.said["work-0.log"]
    assert b'kvlens_connector_undecodable_total{reason="bad_hash_type"' in behind.said["connector metrics"]
    assert b"kvlens_worker_records_total" in behind.said["worker metrics"]


def test_no_kafka_record_holds_any(behind: Behind) -> None:
    records = [(topic, part) for topic, parts in behind.kafka.items() for part in parts]
    assert places((topic, in_bytes(part) | in_packed(part)) for topic, part in records) == {}


def test_the_key_of_names_is_nowhere(behind: Behind) -> None:
    found = [part for parts in behind.kafka.values() for part in parts]
    found += [*behind.rows.values(), *behind.said.values()]
    assert not any(KEY in part for part in found)


def test_no_row_holds_any(behind: Behind) -> None:
    assert places((table, in_bytes(raw)) for table, raw in behind.rows.items()) == {}
    assert places((table, in_value(rows)) for table, rows in behind.json_rows.items()) == {}


def test_no_log_no_metrics_page_and_no_other_file_holds_any(behind: Behind) -> None:
    assert places((name, in_bytes(raw)) for name, raw in behind.said.items()) == {}
