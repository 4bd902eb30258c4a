"""Reports of LMCache's servers, by what they say of each place."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from typing import Any

import pytest

from connectors.lmcache.decoder import Place, ReportDecoder, Reported
from connectors.normalise.pseudonyms import Pseudonyms
from schemas.events import Accessed, Capacity, Event, Removed, Stored, Undecodable
from tests.support.inputs.captures import reported, reported_truth

NAME = "lmcache-0.5.6"
MODEL = "org/model-x"
KEY = Pseudonyms(b"0123456789abcdef")
DIGEST = "00112233445566778899aabbccddeeff"


def decoded(batch: dict[str, Any], salts: Pseudonyms | None = KEY) -> tuple[list[Reported], Counter[Any]]:
    return ReportDecoder([MODEL], salts).decode(json.dumps({"batches": [batch]}).encode())


def batch(event_type: str = "store", tier: str = "l1", backend: str = "dram", **more: Any) -> dict[str, Any]:
    return {
        "instance_id": "a",
        "incarnation": 7,
        "seq": 1,
        "event_type": event_type,
        "tier": tier,
        "backend": backend,
        **more,
    }


def entry(digest: str = DIGEST, *, rank: int = 0x01000100, tokens: int = 4, **key: Any) -> dict[str, Any]:
    named = {"chunk_hash_hex": digest, "model_name": MODEL, "kv_rank": rank, **key}
    return {"key": named, "size_bytes": 100, "token_ids": [9] * tokens, "token_offset": 0}


def events_at(found: list[Reported], place: Place) -> list[Event]:
    (one,) = found
    return one.parts[place].events


def placed(name: str) -> dict[str, set[tuple[int, bytes]]]:
    """What is held at the end by the decoded events alone, by place as the truth calls it."""
    held: dict[str, set[tuple[int, bytes]]] = defaultdict(set)
    reached: dict[str, tuple[int, int]] = {}
    decoder = ReportDecoder([MODEL], KEY, retains=True)  # as the stand-in of the servers' memory does
    for _, value in reported(NAME, name):
        found, refused = decoder.decode(value)
        assert not refused
        for one in found:
            life = one.incarnation, one.seq
            before = reached.get(one.instance, (one.incarnation, 0))
            if life <= before:
                continue
            if life[0] > before[0]:
                held[one.instance].clear()
            reached[one.instance] = life
            for place, part in one.parts.items():
                who = place.instance or "pool"
                at = held[f"{who}:{place.backend}" if place.backend else who]
                for event in part.events:
                    if isinstance(event, Stored):
                        assert event.size_bytes == 1 << 20
                        at.add((event.group_idx, event.hashes))
                    elif isinstance(event, Removed):
                        for start in range(0, len(event.hashes), 8):
                            at.discard((event.group_idx, event.hashes[start : start + 8]))
                    else:
                        assert isinstance(event, Accessed | Capacity)
    return held


@pytest.mark.parametrize("how", ["records", "posts"])
def test_what_is_held_is_what_the_directory_of_lmcache_says(how: str) -> None:
    expected: dict[str, set[tuple[int, bytes]]] = {}
    salted = 0
    for place, objects in reported_truth(NAME)["final"].items():
        found = expected[place] = set()
        for kv_rank, _, salt, digest in objects:
            named = bytes.fromhex(KEY.name(f"{salt}\0{digest}")) if salt else bytes.fromhex(digest)[-8:]
            # Two workers are groups 1 and 2.
            found.add((1 + (kv_rank >> 16 & 0xFF), named))
            salted += bool(salt)
        assert len(found) == len(objects)
    assert placed(how) == expected
    assert salted > 20


def test_capacity_is_what_the_server_declares() -> None:
    found, _ = decoded(batch("config", capacity_bytes=1 << 30))
    assert events_at(found, Place("a", "", MODEL)) == [Capacity("cpu", 1 << 30)]
    found, _ = decoded(batch("config", "l2", "s3", shared=True, capacity_bytes=5))
    assert events_at(found, Place("", "s3", MODEL)) == [Capacity("lmcache-l2-s3", 5)]
    found, _ = decoded(batch("config", "l2", "s3", capacity_bytes=0))
    assert found[0].parts == {}


def declared(*compartments: tuple[str, str, int, bool], revision: int) -> list[dict[str, Any]]:
    return [
        batch("config", tier, backend, capacity_bytes=size, shared=shared, capacity_revision=revision)
        for tier, backend, size, shared in compartments
    ]


def test_what_a_newer_declaration_omits_has_no_capacity_any_more() -> None:
    decoder = ReportDecoder([MODEL], KEY)
    memory, storage, pool = Place("a", "", MODEL), Place("a", "fs", MODEL), Place("", "s3", MODEL)
    capacities: dict[tuple[Place, str], int] = {}

    def declare(*compartments: tuple[str, str, int, bool], revision: int) -> None:
        payload = {"batches": declared(*compartments, revision=revision)}
        for one in decoder.decode(json.dumps(payload).encode())[0]:
            for place, part in one.parts.items():
                for event in part.events:
                    assert isinstance(event, Capacity)
                    capacities[place, event.medium] = event.capacity_bytes

    everything = [("l1", "dram", 10, False), ("l1", "gds", 20, False), ("l2", "fs", 30, False)]
    declare(*everything, ("l2", "s3", 40, True), revision=1)
    full = {
        (memory, "cpu"): 10,
        (memory, "lmcache-l1-gds"): 20,
        (storage, "lmcache-l2-fs"): 30,
        (pool, "lmcache-l2-s3"): 40,
    }
    assert capacities == full
    declare(*everything, revision=2)
    assert capacities == full  # the pool is that of others, too
    declare(("l1", "dram", 11, False), ("l1", "gds", 0, False), revision=3)
    ended = {(memory, "cpu"): 11, (memory, "lmcache-l1-gds"): 0, (storage, "lmcache-l2-fs"): 0}
    assert capacities == full | ended
    declare(("l2", "fs", 30, False), revision=2)
    declare(("l1", "dram", 12, False), revision=3)
    assert capacities[memory, "cpu"] == 12
    assert capacities[memory, "lmcache-l1-gds"] == 0


def test_memory_that_several_servers_map_counts_once() -> None:
    store = batch("store", "l1", "devdax", shared=True, entries=[entry()])
    pool = Place("", "l1-devdax", MODEL)
    for server in ("a", "b"):
        found, _ = decoded({**store, "instance_id": server})
        (event,) = events_at(found, pool)
        assert isinstance(event, Stored)
        assert event.medium == "lmcache-l1-devdax"
        assert [*found[0].parts] == [pool]
    found, _ = decoded(batch("config", "l1", "devdax", shared=True, capacity_bytes=5))
    assert events_at(found, pool) == [Capacity("lmcache-l1-devdax", 5)]
    found, _ = decoded(batch("access", "l1", "", entries=[entry()]))
    assert [*found[0].parts] == [Place("a", "", MODEL)]


DIGESTS = (DIGEST, "ff" * 16)
PACKED = tuple(bytes.fromhex(digest)[-8:] for digest in DIGESTS)


def test_memory_touches_objects_for_several_reasons_and_does_not_say_on_which_medium() -> None:
    found, _ = decoded(batch("access", backend="", entries=[*map(entry, DIGESTS), entry()]))
    (part,) = found[0].parts.values()
    assert part.events == [Accessed(PACKED[0] + PACKED[1] + PACKED[0])]
    assert (part.engine_events, part.skipped) == (3, 0)


@pytest.mark.parametrize(
    ("backend", "hits"),
    [
        ("fs", True),
        ("s3", True),
        ("raw_block", True),
        ("valkey", False),
        ("sagemaker-hyperpod", False),
        ("x", False),
    ],
)
def test_what_is_read_from_storage_is_a_hit_where_the_backend_tells_once(backend: str, hits: bool) -> None:
    entries = [entry(rank=0x02000200), *(entry(digest, rank=0x02010201) for digest in DIGESTS), entry()]
    medium = f"lmcache-l2-{backend}"
    expected = [
        Accessed(PACKED[0], medium, None, 1, hits),
        Accessed(PACKED[0] + PACKED[1], medium, None, 2, hits),
        Accessed(PACKED[0], medium, None, 0, hits),
    ]
    found, _ = decoded(batch("access", "l2", backend, entries=entries))
    assert events_at(found, Place("a", backend, MODEL)) == expected
    found, _ = decoded(batch("access", "l2", backend, shared=True, entries=entries))
    assert events_at(found, Place("", backend, MODEL)) == expected


def test_an_access_of_what_nobody_can_name_costs_no_trust() -> None:
    entries = [entry(cache_salt="s"), entry("zz"), entry()]
    found, refused = decoded(batch("access", backend="", entries=entries), None)
    (part,) = found[0].parts.values()
    assert (part.events, part.engine_events, part.skipped) == ([Accessed(PACKED[0])], 3, 2)
    found, refused = decoded(batch("access", "l2", "", entries=entries))
    (part,) = found[0].parts.values()
    assert (part.events, part.engine_events, part.skipped, refused) == ([], 3, 3, Counter())


def test_objects_of_each_worker_and_object_group_are_apart() -> None:
    ranks = [0x01000100, 0x02000200, 0x02010201, 0x08070807]
    entries = [entry(rank=rank) for rank in ranks] + [entry(object_group_id=1)]
    found, _ = decoded(batch(entries=entries))
    events = events_at(found, Place("a", "", MODEL))
    assert [event.group_idx for event in events if isinstance(event, Stored)] == [0, 1, 2, 35, 8128]
    found, _ = decoded(batch("delete", entries=entries[1:3] * 2))
    packed = bytes.fromhex(DIGEST)[-8:]
    assert events_at(found, Place("a", "", MODEL)) == [
        Removed(packed * 2, "cpu", "dram", 1),
        Removed(packed * 2, "cpu", "dram", 2),
    ]


def test_a_salt_leaves_as_a_keyed_hash_or_not_at_all() -> None:
    stored = batch(entries=[entry(cache_salt="s1"), entry(cache_salt="s2"), entry()])
    found, _ = decoded(stored)
    hashes = [event.hashes for event in events_at(found, Place("a", "", MODEL)) if isinstance(event, Stored)]
    assert len(set(hashes)) == 3
    assert hashes[2] == bytes.fromhex(DIGEST)[-8:]
    found, _ = decoded(stored, None)
    undecodable, plain = events_at(found, Place("a", "", MODEL))
    assert undecodable == Undecodable("no_salt_key", count=2)
    assert isinstance(plain, Stored)


@pytest.mark.parametrize(
    ("key", "reason"),
    [
        ({"digest": "zz"}, "bad_block_hashes"),
        ({"digest": "00"}, "bad_hash_length"),
        ({"rank": 0x02020202}, "bad_group"),
        ({"rank": 0xFF000000}, "bad_group"),
        ({"object_group_id": 8}, "bad_group"),
    ],
)
def test_an_object_that_nobody_understands_costs_itself(key: dict[str, Any], reason: str) -> None:
    found, refused = decoded(batch(entries=[entry(**key), entry()]))
    undecodable, plain = events_at(found, Place("a", "", MODEL))
    assert (undecodable, type(plain), refused) == (Undecodable(reason), Stored, Counter())


def test_types_and_tiers_that_nobody_knows_are_named() -> None:
    found, _ = decoded(batch("pinned", entries=[entry(), entry()]))
    assert events_at(found, Place("a", "", MODEL)) == [Undecodable("unknown_type", None, 2, "pinned", "cpu")]
    found, _ = decoded(batch("pinned!", "l3", "tape"))
    assert events_at(found, Place("a", "", MODEL)) == [Undecodable("unknown_type")]


@pytest.mark.parametrize(
    "change",
    [
        {"instance_id": ""},
        {"incarnation": -1},
        {"incarnation": 1 << 60},
        {"seq": 0},
        {"seq": "1"},
        {"tier": None},
        {"ts": -1.0},
        {"entries": [{"key": None}]},
        {"tier": "l2", "backend": ""},
    ],
)
def test_a_batch_that_is_none_is_refused(change: dict[str, Any]) -> None:
    assert decoded({**batch(), **change}) == ([], Counter({"bad_batch": 1}))


def test_what_is_no_report_is_refused() -> None:
    decoder = ReportDecoder([MODEL], None)
    for payload in (b"", b"\xff", b"[]", b'{"batches": 3}', b"[" * 10_000):
        assert decoder.decode(payload) == ([], Counter({"malformed": 1}))


def test_other_models_are_counted() -> None:
    other = entry()
    other["key"]["model_name"] = "else"
    found, refused = decoded(batch(entries=[other, entry()]))
    assert refused == Counter({"unknown_model": 1})
    assert len(events_at(found, Place("a", "", MODEL))) == 1
