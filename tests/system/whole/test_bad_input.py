"""An engine that sends every kind of nonsense among its batches, beside one that does not."""

from __future__ import annotations

import json
import random
import time
import urllib.request
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import islice, zip_longest
from typing import Any, get_args

import msgspec
import pytest
from prometheus_client.parser import text_string_to_metric_families

from pipeline.simulator.engine.scheduler import Engine
from pipeline.simulator.engine.settings import EngineSettings
from pipeline.simulator.traffic.workload import WorkloadSettings, arrivals
from pipeline.simulator.wire.encoding import encoded_batch
from pipeline.simulator.wire.eras import ERAS
from schemas.reasons import UndecodableReason

pytestmark = pytest.mark.night

encode, decode = msgspec.msgpack.encode, msgspec.msgpack.decode
Message = list[bytes]

HASH = 77
"""Of no simulated block: wherever a bad event is taken for a good one, the tables show it."""
INVALID_TEXT = msgspec.Raw(b"\xa2\xc3\x28")
NESTED = ["BlockStored", [HASH], None, [1] * 16, 16, None, "GPU"]
STORED = {"type": "BlockStored", "block_hashes": [HASH], "parent_block_hash": None, "block_size": 16}
REMOVED = {"type": "BlockRemoved", "block_hashes": [HASH], "medium": "GPU"}


def without(event: dict[str, Any], name: str) -> dict[str, Any]:
    return {key: value for key, value in event.items() if key != name}


BAD_EVENTS: list[tuple[Any, str]] = [
    # no event at all
    (None, "missing_type"),
    (12, "missing_type"),
    ("BlockStored", "missing_type"),
    (b"BlockStored", "missing_type"),
    ([], "missing_type"),
    ({}, "missing_type"),
    (without(STORED, "type"), "missing_type"),
    # unknown types, types of a wrong type
    (["BlockMoved", [HASH], "GPU", "CPU"], "unknown_type"),
    ({"type": "BlockMoved", "block_hashes": [HASH]}, "unknown_type"),
    ([5, [HASH]], "type_not_string"),
    (STORED | {"type": None}, "type_not_string"),
    (STORED | {"type": ["BlockStored"]}, "type_not_string"),
    # events nested in events
    ([NESTED, NESTED], "type_not_string"),
    ([STORED], "type_not_string"),
    ({"type": STORED}, "type_not_string"),
    (["BlockRemoved", [NESTED], "GPU"], "bad_hash_type"),
    (STORED | {"block_hashes": [STORED]}, "bad_hash_type"),
    (STORED | {"parent_block_hash": NESTED}, "bad_parent_hash"),
    (STORED | {"medium": NESTED}, "bad_medium"),
    # too short
    (["BlockStored", [HASH]], "truncated_tuple"),
    (["BlockStored", [HASH], None, [1] * 16], "truncated_tuple"),
    (["BlockRemoved"], "truncated_tuple"),
    (without(STORED, "block_hashes"), "missing_field"),
    (without(STORED, "block_size"), "missing_field"),
    (without(REMOVED, "block_hashes"), "missing_field"),
    # an object of a store that says not which
    ({"type": "BlockStored", "tenant_id": "default", "block_hashes": [], "block_size": 16}, "no_identity"),
    # nil hashes, hashes of odd length, hashes of wrong types
    (["BlockRemoved", [None], "GPU"], "nil_hash"),
    (["BlockStored", [HASH, None], None, [1] * 32, 16], "nil_hash"),
    (STORED | {"block_hashes": [None, HASH]}, "nil_hash"),
    (STORED | {"block_hashes": None}, "bad_block_hashes"),
    (STORED | {"block_hashes": HASH}, "bad_block_hashes"),
    (["BlockRemoved", "hashes", "GPU"], "bad_block_hashes"),
    (["BlockRemoved", [b"1" * 9], "GPU"], "bad_hash_length"),
    (STORED | {"block_hashes": [b"1" * 31]}, "bad_hash_length"),
    (STORED | {"block_hashes": [b""]}, "bad_hash_length"),
    (STORED | {"parent_block_hash": b"1" * 33}, "bad_parent_hash"),
    (STORED | {"parent_block_hash": 0.5}, "bad_parent_hash"),
    (["BlockRemoved", [1.5], "GPU"], "bad_hash_type"),
    (["BlockRemoved", ["0xabcdef"], "GPU"], "bad_hash_type"),
    # block sizes
    (["BlockStored", [HASH], None, [1] * 16, -16, None, "GPU"], "bad_block_size"),
    (STORED | {"block_size": -1}, "bad_block_size"),
    (STORED | {"block_size": None}, "bad_block_size"),
    (STORED | {"block_size": "16"}, "bad_block_size"),
    (STORED | {"block_size": 1 << 40}, "bad_block_size"),
    # wrong types of the rest
    (STORED | {"medium": 0}, "bad_medium"),
    (REMOVED | {"medium": {"name": "GPU"}}, "bad_medium"),
    (STORED | {"group_idx": "0"}, "bad_group"),
    (REMOVED | {"group_idx": -1}, "bad_group"),
    (STORED | {"lora_name": 9}, "bad_field_type"),
    (STORED | {"lora_id": [9]}, "bad_field_type"),
    (STORED | {"kv_cache_spec_kind": 9}, "bad_field_type"),
    (STORED | {"kv_cache_spec_sliding_window": "128"}, "bad_field_type"),
    # invalid UTF-8
    ([INVALID_TEXT, [HASH]], "invalid_utf8"),
    (STORED | {"type": INVALID_TEXT}, "invalid_utf8"),
    (STORED | {"medium": INVALID_TEXT}, "invalid_utf8"),
    (STORED | {"lora_name": INVALID_TEXT}, "invalid_utf8"),
]
EVENT_ROUNDS = 4

UNKNOWN_FIELDS = {"from_the_future": {"deep": [NESTED, None]}, "text": INVALID_TEXT, "count": -1}
"""What a newer engine may add: no reason to skip an event."""

LARGE = b"\x93\xcb" + bytes(8) + b"\xdd" + (50 << 20).to_bytes(4, "big") + bytes(50 << 20) + b"\x00"
"""A whole batch, of 52 million events none of which has a type."""


def bad_messages(rng: random.Random, good: bytes) -> list[tuple[Callable[[bytes], Message], str, bool]]:
    """Messages nobody can read: made from the number that is due, why, and whether they use the number up."""

    def payload(content: bytes) -> Callable[[bytes], Message]:
        return lambda seq: [b"kv-events", seq, content]

    unreadable = [b"", b"\xc1", good + b"\x00", *(rng.randbytes(size) for size in (3, 40, 1000, 20_000))]
    truncated = [good[: len(good) * cut // 5] for cut in range(1, 5)]
    no_envelopes = [
        encode(value)
        for value in (None, 7, "text", [], [1.5], [1.5, None], [1.5, {}], {}, {"ts": 1.5}, {"events": 5})
    ]
    messages: list[tuple[Callable[[bytes], Message], str, bool]] = [
        *((payload(content), "not_msgpack", True) for content in (*unreadable, *truncated)),
        *((payload(content), "not_an_envelope", True) for content in no_envelopes),
        (payload(LARGE), "frame_too_large", True),
        (lambda seq: [good], "frame_count", False),
        (lambda seq: [seq, good], "frame_count", False),
        (lambda seq: [b"kv-events", seq], "frame_count", False),
        (lambda seq: [b"kv-events", seq, good, b""], "frame_count", False),
        (lambda seq: [b"kv-events", seq, good, b"", good], "frame_count", False),
        (lambda seq: [b"kv-events", b"", good], "bad_seq", False),
        (lambda seq: [b"kv-events", seq[1:], good], "bad_seq", False),
        (lambda seq: [b"kv-events", seq + b"\x00", good], "bad_seq", False),
        (lambda seq: [b"kv-events", b"\xff" * 8, good], "bad_seq", False),
        (lambda seq: [rng.randbytes(9), b"\x80" + rng.randbytes(7), rng.randbytes(99)], "bad_seq", False),
    ]
    rng.shuffle(messages)
    return messages


def simulated(seed: int, era: str) -> tuple[Engine, list[bytes]]:
    """A small engine under chats, and the payloads of its batches."""
    engine = Engine(EngineSettings(num_blocks=600))
    payloads = []

    def step() -> None:
        if events := engine.step():
            payloads.append(encoded_batch(ERAS[era], time.time(), events))

    for _, request in islice(arrivals(WorkloadSettings(seed=seed, canned_share=0.3)), 60):
        engine.submit(request)
        for _ in range(8):
            step()
    while engine.busy:
        step()
    return engine, payloads


def recounted(events: Iterable[Any]) -> Counter[int]:
    """Copies of each hash after events of either form, in the plainest way."""
    copies: Counter[int] = Counter()
    for event in events:
        kind, hashes = (event["type"], event["block_hashes"]) if isinstance(event, dict) else event[:2]
        for block in hashes:
            copies[block] += 1 if kind == "BlockStored" else -1
    assert all(count >= 0 for count in copies.values())
    return +copies


@dataclass
class Mess:
    """The messages of the bad engine, and what is right to make of them."""

    messages: list[Message]
    batches: int
    events: int
    planted: Counter[str]
    resident: Counter[int]


def mess(payloads: list[bytes]) -> Mess:
    """Plant bad events in the batches and bad messages between them."""
    rng = random.Random(3)
    events_left = [pair for _ in range(EVENT_ROUNDS) for pair in rng.sample(BAD_EVENTS, len(BAD_EVENTS))]
    messages_left = bad_messages(rng, payloads[0])
    every = len(payloads) // len(messages_left)
    assert every >= 1
    share = -(-len(events_left) // len(payloads))
    found = Mess([], 0, 0, Counter(), Counter())
    good_events: list[Any] = []
    number = 0

    def send(make: Callable[[bytes], Message], uses_number: bool = True) -> None:
        nonlocal number
        found.messages.append(make(number.to_bytes(8, "big")))
        number += uses_number

    for turn, payload in enumerate(payloads):
        ts, events, rank = decode(payload)
        good_events += events
        events = [
            event | UNKNOWN_FIELDS if isinstance(event, dict) and rng.random() < 0.3 else event
            for event in events
        ]
        for bad, reason in events_left[:share]:
            events.insert(rng.randint(0, len(events)), bad)
            found.planted[reason] += 1
        del events_left[:share]
        if turn % 50 == 7:
            ts = rng.choice([None, "now", float("nan"), [ts]])
            found.planted["bad_timestamp"] += 1
        envelope: Any = {"ts": ts, "events": events, "x": UNKNOWN_FIELDS} if turn % 3 else [ts, events, rank]
        content = encode(envelope)
        send(lambda seq, content=content: [b"kv-events", seq, content])  # type: ignore[misc]
        found.batches += 1
        found.events += len(events)
        if turn % every == 0 and messages_left:
            make, reason, uses_number = messages_left.pop()
            send(make, uses_number)
            found.planted[reason] += 1
    assert not events_left
    assert not messages_left
    found.resident = recounted(good_events)
    return found


@dataclass
class Outcome:
    pipeline: Any
    mess: Mess
    good_batches: int
    engines: dict[str, Engine]
    metrics: str
    connector_said: str
    worker_said: str
    alive: list[bool]
    seconds: float


@pytest.fixture(scope="module")
def outcome(new_pipeline: Callable[..., Any]) -> Outcome:
    bad_engine, bad_payloads = simulated(1, "vllm-0.33")
    good_engine, good_payloads = simulated(2, "vllm-0.22")
    planted = mess(bad_payloads)
    pipeline = new_pipeline("bad", "good")
    began = time.monotonic()
    worker, connector = pipeline.start("work"), pipeline.start("connect")
    pipeline.wait_subscribed()
    numbered = ([b"kv-events", seq.to_bytes(8, "big"), p] for seq, p in enumerate(good_payloads))
    for bad, good in zip_longest(planted.messages, numbered):
        for name, message in (("bad", bad), ("good", good)):
            if message is not None:
                pipeline.publish(name, message)
    pipeline.wait_batches({"bad": planted.batches, "good": len(good_payloads)})
    # Notices that no batch carries may still be on their way.
    pipeline.wait_rows(
        "SELECT replica, sum(undecodable_events) FROM {}.stream_health_10s FINAL GROUP BY 1",
        {"bad": planted.planted.total(), "good": 0},
    )
    metrics = pipeline.metrics("connector")
    alive = [
        part.alive
        and urllib.request.urlopen(f"http://127.0.0.1:{settings.metrics_port}/livez", timeout=60).status
        == 200
        for part, settings in (
            (connector, pipeline.settings.connector),
            (worker, pipeline.settings.worker),
        )
    ]
    seconds = time.monotonic() - began
    pipeline.finish(connector, worker)
    return Outcome(
        pipeline,
        planted,
        len(good_payloads),
        {"bad": bad_engine, "good": good_engine},
        metrics,
        connector.said(),
        worker.said(),
        alive,
        seconds,
    )


OF_LMCACHE = "no_salt_key"
"""Engines list no salts beside objects: LMCache's servers do (`connectors/lmcache/test_decoder.py`)."""


def test_there_is_something_to_see(outcome: Outcome) -> None:
    """Every reason that an engine's stream can give, and engines that evicted and held second copies."""
    assert set(outcome.mess.planted) == set(get_args(UndecodableReason)) - {OF_LMCACHE}
    for engine in outcome.engines.values():
        assert engine.counters.evicted_blocks > 400
        assert engine.counters.duplicate_blocks > 0


def test_both_processes_lived_through_it(outcome: Outcome) -> None:
    assert outcome.alive == [True, True]
    for said in (outcome.connector_said, outcome.worker_said):
        assert "Traceback" not in said
        assert '"exception"' not in said


def test_the_good_events_of_both_are_in_the_tables_and_nothing_else_is(outcome: Outcome) -> None:
    copies = outcome.mess.resident
    engine = outcome.engines["bad"].pool
    assert (copies.total(), len(copies)) == (engine.physical, engine.distinct)
    trusts = {"bad": "degraded", "good": "complete"}
    assert outcome.pipeline.latest_occupancy() == {
        (name, "gpu", 0): (one.pool.physical, one.pool.distinct, one.pool.distinct * 16, trusts[name])
        for name, one in outcome.engines.items()
    }
    flows = outcome.pipeline.query(
        "SELECT replica, sum(stored_blocks), sum(removed_blocks), sum(unknown_removed_blocks), "
        "sum(reannounced_blocks), sum(cleared_blocks) FROM {}.flow_10s FINAL GROUP BY replica ORDER BY 1"
    )
    assert flows == [
        (name, one.counters.stored_blocks, one.counters.evicted_blocks, 0, 0, 0)
        for name, one in outcome.engines.items()
    ]


def test_every_bad_event_and_frame_is_counted_and_shows_in_trust(outcome: Outcome) -> None:
    rows = outcome.pipeline.query(
        "SELECT replica, sum(batches), sum(undecodable_events), sum(gap_batches + lost_batches), "
        "sum(duplicate_batches), sum(restarts), groupUniqArray(trust) "
        "FROM {}.stream_health_10s FINAL GROUP BY replica ORDER BY replica"
    )
    planted = outcome.mess.planted.total()
    assert rows == [
        ("bad", outcome.mess.batches, planted, 0, 0, 0, ["degraded"]),
        ("good", outcome.good_batches, 0, 0, 0, 0, ["complete"]),
    ]
    ((events,),) = outcome.pipeline.query(
        "SELECT sum(events) FROM {}.stream_health_10s FINAL WHERE replica = 'bad'"
    )
    assert events == outcome.mess.events
    for table in ("occupancy_10s", "flow_10s", "sources"):
        trusts = outcome.pipeline.query(
            f"SELECT DISTINCT replica, trust FROM {{}}.{table} FINAL ORDER BY ALL"
        )
        assert trusts == [("bad", "degraded"), ("good", "complete")], table


def test_the_connector_counts_by_reason_what_was_planted(outcome: Outcome) -> None:
    samples = {
        (sample.labels["replica"], sample.labels["reason"]): sample.value
        for family in text_string_to_metric_families(outcome.metrics)
        for sample in family.samples
        if sample.name == "kvlens_connector_undecodable_total"
    }
    assert samples == {("bad", reason): count for reason, count in outcome.mess.planted.items()}


def test_logs_stay_short(outcome: Outcome) -> None:
    lines = [json.loads(line) for line in outcome.connector_said.splitlines()]
    about_bad = [line for line in lines if line["event"] == "events_undecodable"]
    assert 1 <= len(about_bad) <= 1 + outcome.seconds / 10
    assert {line["replica"] for line in about_bad} == {"bad"}
    assert len(lines) < 30
    # What Faust says at start and end of two agents, however much is planted.
    assert len(outcome.worker_said.splitlines()) < 200 < outcome.mess.planted.total()
