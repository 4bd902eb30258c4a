"""Every publisher in one fleet, from sockets to tables: each is what its truth says, beside two bad ones."""

from __future__ import annotations

import secrets
from collections import Counter
from collections.abc import Callable
from itertools import zip_longest
from typing import Any

import msgspec
import pytest

from connectors.normalise.hashes import tenant_group
from schemas.settings import Lmcache
from tests.support import reports
from tests.support.inputs.captures import captured_frames, captured_truth, reported

VLLM, SGLANG, TRTLLM = "vllm-0.33.0-map", "sglang-0.5.15-array", "trtllm-1.3-map"
MOONCAKE, TENANTS = "mooncake-0.3.14-map", "mooncake-0.3.14-map-tenants"
STORAGE, ATOM = "llmd-2026.06-storage", "atom-2026.08-array"
pytestmark = pytest.mark.night

COORDINATOR = "lmcache-4768-coordinator"
NODE_A, NODE_B, POOL = "lmcache-a", "lmcache-b", "lmcache-pool"
EMITTERS = {
    "kv@node:a@org/model-x": NODE_A,
    "kv@node:b@org/model-x": NODE_B,
    "kv@pool:fs@org/model-x": POOL,
}
"""Replicas of LMCache's coordinator, by their topics on its socket."""
EVICTOR = "llmd-2026.06-models"
STORES, *ONLY_REMOVE = EVICTING = {
    f"kv@SHARED_STORAGE@{model}": f"llmd-{model[-1]}" for model in captured_truth(EVICTOR)["removed"]
}
"""Topics of llm-d's evictor on its socket, and the replicas: it stores for the first, and removes for all."""
REPORTING = tuple(reports.batches())
"""Memory and storage of LMCache's servers, which report over Kafka."""
POSTING = tuple(map(reports.of_others, REPORTING))
"""The same of other servers, which report over HTTP."""
FLEET = (
    *(VLLM, SGLANG, TRTLLM, MOONCAKE, TENANTS, STORAGE, ATOM),
    *(*EMITTERS.values(), *EVICTING.values(), *REPORTING, *POSTING),
)
GAP, NAMELESS = "loses-and-invents", "names-nothing"
BROKEN = "lmcache-broken"
BROKEN_TOPIC = "kv@node:c@org/model-x"
"""A fourth emitter on the coordinator's socket, of which nobody understands anything."""
LIAR = f"node-liar@{reports.MODEL}"
"""A server that reports objects that are none, between those of the others and rubbish."""
LIES = 9
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
    **dict.fromkeys(EMITTERS.values(), ("lmcache", "complete")),
    **dict.fromkeys(EVICTING.values(), ("llm-d", "partial")),
    **{
        name: ("lmcache", "partial" if ":" in name.partition("@")[0] else "complete")
        for name in (*REPORTING, *POSTING)
    },
    BROKEN: ("", "degraded"),
    LIAR: ("lmcache", "degraded"),
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


def with_a_broken_emitter() -> list[list[bytes]]:
    """The coordinator's messages, and between them, with numbers of their own, some that nobody knows."""
    found: list[list[bytes]] = []
    for topic, _, payload in captured_frames(COORDINATOR):
        sent = [[topic, payload]]
        if len(found) % 10 == 0:
            rubbish = msgspec.msgpack.encode([1.5, [["BlockBent", [7]], 12]]) if len(found) % 20 else b"\xc1"
            sent.append([BROKEN_TOPIC.encode(), rubbish])
        for under, what in sent:
            found.append([under, len(found).to_bytes(8, "big"), what])
    return found


def with_a_lying_server() -> list[tuple[bytes, bytes]]:
    """What LMCache's servers report, and between it what nobody understands."""
    entry = {"key": {"chunk_hash_hex": "odd", "model_name": reports.MODEL, "kv_rank": 1 << 24}}
    found = list(reported(reports.NAME, "records"))
    for seq in range(1, LIES + 1):
        lie = {"instance_id": "node-liar", "incarnation": 1_790_000_000, "seq": seq, "event_type": "store"}
        lie |= {"tier": "l1", "backend": "dram", "ts": 1_790_000_000.0 + seq, "entries": [entry]}
        found.insert(80 * seq, (b"node-liar", msgspec.json.encode({"batches": [lie]})))
        found.insert(80 * seq, (b"node-a", b'{"batches": [{"instance_id": "node-a"}, 7]'))
    return found


@pytest.fixture(scope="module")
def fleet(
    new_pipeline: Callable[..., Any], free_port: Callable[[], int], tmp_path_factory: pytest.TempPathFactory
) -> Any:
    """The pipeline after all of them, with both processes stopped in order; the recount agreed."""
    silent = {*EMITTERS.values(), *EVICTING.values(), *REPORTING, *POSTING}
    sent = {name: captured_frames(name) for name in FLEET if name not in silent}
    sent |= {GAP: loses_and_invents(), NAMELESS: names_nothing(), COORDINATOR: with_a_broken_emitter()}
    sent[EVICTOR] = captured_frames(EVICTOR)
    topic = f"cache-events-{secrets.token_hex(4)}"
    salts = tmp_path_factory.mktemp("key") / "salts"
    salts.write_bytes(b"0123456789abcdef")
    token = secrets.token_hex(16)
    lmcache = Lmcache(
        models=reports.MODEL,
        topic=topic,
        group=topic,
        port=free_port(),
        token=token,
        salt_key_file=str(salts),
        l2_prefetch_policy="retain",
    )
    emitters = {COORDINATOR: {**EMITTERS, BROKEN_TOPIC: BROKEN}, EVICTOR: EVICTING}
    pipeline = new_pipeline(*sent, emitters=emitters, lmcache=lmcache)
    kafka = pipeline.settings.kafka.bootstrap_servers
    reports.make_topic(kafka, topic, 1)
    worker, connector = pipeline.start("work"), pipeline.start("connect")
    pipeline.wait_subscribed()
    reports.send(kafka, topic, with_a_lying_server())
    for content_type, body in reported(reports.NAME, "posts"):
        reports.post(lmcache.port, content_type.decode(), reports.other_servers(body), token)
    for turn in zip_longest(*([(name, parts) for parts in messages] for name, messages in sent.items())):
        for name, parts in filter(None, turn):
            pipeline.publish(name, parts)
    expected = {name: len(messages) for name, messages in sent.items()}
    all_of_them = expected.pop(COORDINATOR)
    not_batches = sum(payload == b"\xc1" for _, _, payload in sent[COORDINATOR])
    expected |= dict.fromkeys(EMITTERS.values(), all_of_them) | {BROKEN: all_of_them - not_batches}
    expected |= dict.fromkeys(EVICTING.values(), expected.pop(EVICTOR))
    expected |= {**reports.batches(), LIAR: LIES}
    expected |= {reports.of_others(name): count for name, count in reports.batches().items()}
    pipeline.wait_batches(expected, 240.0)
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
    chunks = {
        (EMITTERS[topic], "cpu" if medium == "lmcache-l1" else medium, 0): (count, count)
        for topic, blocks in captured_truth(COORDINATOR)["final"].items()
        for medium, count in Counter(medium for medium, _ in blocks).items()
    }
    files = len(captured_truth(EVICTOR)["final_cached"])
    return {
        **chunks,
        **reports.held(),
        **reports.held_by_others(),
        (EVICTING[STORES], "storage", 0): (files, files),
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
    hold_nothing = {EVICTING[topic] for topic in ONLY_REMOVE}
    assert {(place[0], row[3]) for place, row in found.items()} == {
        (name, ENGINES[name][1]) for name in FLEET if name not in hold_nothing
    }


def test_what_llmds_evictor_removes_counts_where_it_removes_it(fleet: Any) -> None:
    """Of models for which it only removes, all blocks were stored elsewhere."""
    rows = fleet.query("SELECT replica, sum(unknown_removed_blocks) FROM {}.flow_10s FINAL GROUP BY replica")
    counts = dict(rows)
    removed = captured_truth(EVICTOR)["removed"]
    for topic in ONLY_REMOVE:
        assert counts[EVICTING[topic]] == len(removed[topic.rpartition("@")[2]]) > 0


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
    messages = with_a_broken_emitter()
    broken = sum(topic == BROKEN_TOPIC.encode() for topic, _, _ in messages)
    broken += sum(payload.startswith(b"\x92\xcb?") for _, _, payload in messages)  # two events each
    bad = {GAP: (1, 1), NAMELESS: (0, nameless), BROKEN: (0, broken), LIAR: (0, LIES)}
    assert {name: tuple(counts) for name, *counts in rows} == dict.fromkeys(FLEET, (0, 0)) | bad
