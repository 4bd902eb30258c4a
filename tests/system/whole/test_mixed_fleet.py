"""Every publisher in one fleet, from sockets to tables: each is what its truth says, beside two bad ones."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from itertools import zip_longest
from typing import Any

import msgspec
import pytest

from connectors.normalise.objects import tenant_group
from tests.support.inputs.captures import captured_frames, captured_truth

VLLM, SGLANG, TRTLLM = "vllm-0.33.0-map", "sglang-0.5.15-array", "trtllm-1.3-map"
MOONCAKE, TENANTS = "mooncake-0.3.14-map", "mooncake-0.3.14-map-tenants"
STORAGE, ATOM = "llmd-2026.06-storage", "atom-2026.08-array"
FLEET = (VLLM, SGLANG, TRTLLM, MOONCAKE, TENANTS, STORAGE, ATOM)
GAP, NAMELESS = "loses-and-invents", "names-nothing"
LOST = 40
"""Number of the message that one of the bad ones does not send."""
ENGINES = {
    VLLM: ("vllm", "complete"),
    SGLANG: ("sglang", "complete"),
    TRTLLM: ("trtllm", "complete"),
    MOONCAKE: ("mooncake", "partial"),
    TENANTS: ("mooncake", "partial"),
    STORAGE: ("llm-d", "partial"),
    ATOM: ("atom", "partial"),
    GAP: ("trtllm", "degraded"),
    NAMELESS: ("", "degraded"),
}


def loses_and_invents() -> list[list[bytes]]:
    """TensorRT-LLM's messages without one of them, and one with a type that nobody knows."""
    frames = captured_frames(TRTLLM)
    topic, seq, payload = frames[-1]
    ts, events, rank = msgspec.msgpack.decode(payload)
    invented = msgspec.msgpack.encode([ts, [{"type": "BlockBent"}, *events], rank])
    return [*frames[:LOST], *frames[LOST + 1 : -1], [topic, seq, invented]]


def names_nothing() -> list[list[bytes]]:
    """Mooncake's messages, but the events have no keys."""
    found = []
    for topic, seq, payload in captured_frames(MOONCAKE):
        ts, events, rank = msgspec.msgpack.decode(payload)
        for event in events:
            event.pop("object_key", None)
        found.append([topic, seq, msgspec.msgpack.encode([ts, events, rank])])
    return found


@pytest.fixture(scope="module")
def fleet(new_pipeline: Callable[..., Any]) -> Any:
    """The pipeline after all of them, with both processes stopped in order; the recount agreed."""
    sent = {name: captured_frames(name) for name in FLEET}
    sent |= {GAP: loses_and_invents(), NAMELESS: names_nothing()}
    pipeline = new_pipeline(*sent)
    worker, connector = pipeline.start("work"), pipeline.start("connect")
    pipeline.wait_subscribed()
    for turn in zip_longest(*([(name, parts) for parts in messages] for name, messages in sent.items())):
        for name, parts in filter(None, turn):
            pipeline.publish(name, parts)
    pipeline.wait_batches({name: len(messages) for name, messages in sent.items()}, 240.0)
    pipeline.finish(connector, worker)
    return pipeline


def held() -> dict[tuple[str, str, int], tuple[int, int]]:
    """(replica, medium, group) to entries and blocks, as each publisher knew them at its end."""
    copies = [row[2] for row in captured_truth(VLLM)["final_cached"]]
    pages = Counter(block for _, block in captured_truth(SGLANG)["final_cached"])
    blocks = {name: len(captured_truth(name)["final_cached"]) for name in (TRTLLM, STORAGE, ATOM)}
    remote = len(captured_truth(ATOM)["remote"])
    objects = len(captured_truth(MOONCAKE)["checkpoints"][-1][2]["default"])
    acme = len(captured_truth(TENANTS)["checkpoints"][-1][2]["acme"])
    return {
        (VLLM, "gpu", 0): (sum(copies), len(copies)),
        (SGLANG, "gpu", 0): (pages.total(), len(pages)),
        (TRTLLM, "gpu", 0): (blocks[TRTLLM], blocks[TRTLLM]),
        (MOONCAKE, "cpu", 0): (objects, objects),
        (TENANTS, "cpu", tenant_group("acme")): (acme, acme),
        (STORAGE, "storage", 0): (blocks[STORAGE], blocks[STORAGE]),
        (ATOM, "gpu", 0): (blocks[ATOM], blocks[ATOM]),
        (ATOM, "remote", 0): (remote, remote),
    }


def test_the_tables_say_what_each_publisher_held(fleet: Any) -> None:
    found = {place: row for place, row in fleet.latest_occupancy().items() if place[0] in FLEET}
    entries, *_ = found.pop((TENANTS, "cpu", 0))
    assert entries >= len(captured_truth(TENANTS)["checkpoints"][-1][2]["default"])  # evicts in silence
    assert {place: row[:2] for place, row in found.items()} == held()
    assert {(place[0], row[3]) for place, row in found.items()} == {
        (name, ENGINES[name][1]) for name in FLEET
    }


def test_each_is_called_by_its_name_and_bad_ones_harm_only_themselves(fleet: Any) -> None:
    rows = fleet.query("SELECT replica, engine, trust FROM {}.sources FINAL")
    assert {replica: tuple(said) for replica, *said in rows} == ENGINES


def test_what_is_bad_is_counted_where_it_came_from(fleet: Any) -> None:
    rows = fleet.query(
        "SELECT replica, sum(lost_batches), sum(undecodable_events) "
        "FROM {}.stream_health_10s FINAL GROUP BY replica"
    )
    nameless = sum(
        event["event_type"] != "cleared"
        for _, _, payload in captured_frames(MOONCAKE)
        for event in msgspec.msgpack.decode(payload)[1]
    )
    bad = {GAP: (1, 1), NAMELESS: (0, nameless)}
    assert {name: tuple(counts) for name, *counts in rows} == dict.fromkeys(FLEET, (0, 0)) | bad
