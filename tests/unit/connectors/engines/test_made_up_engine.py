"""A new engine takes one description: everything that reads events or metrics follows it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, cast

import msgspec
import pytest

from connectors.engines.catalogue import CATALOGUE, ENGINES, combined
from connectors.engines.description import Engine, EventType, Field, Medium, Metrics
from connectors.frames.bundle import Bundle
from connectors.normalise.columns import DONE, STATUS
from connectors.normalise.errors import FrameError
from connectors.normalise.normaliser import Normaliser
from connectors.normalise.pseudonyms import Pseudonyms
from connectors.normalise.scanner.payloads import transcode
from connectors.scrape.counters import parse_engine_metrics
from pipeline.verify.replica.expected import open_window
from pipeline.verify.replica.source import SourceRecount
from schemas.events import Cleared, EngineCounters, Event, EventsRecord, Removed, Stored, Undecodable
from schemas.rows import OccupancyRow
from schemas.settings import Worker
from tests.support.decoders import Decoders
from tests.support.inputs.event_records import record
from tests.support.inputs.packed import packed
from tests.support.replica_agent import ReplicaAgent

QUILT = Engine(
    name="quilt",
    events=(
        EventType(
            "PageKept",
            "stored",
            (
                # 1: what was asked, for nobody's eyes
                Field("block_size", "tokens_per_page", 2, required=True),
                Field("medium", "tier", 3),
                Field("hashes", "pages", 4, required=True),
                Field("parent", "before", 5),
                Field("lora_name", "style", 6),
                Field("group_idx", "layer_set", 8),
                Field("session", "chat", 9),
            ),
            foreign_maps=frozenset({6}),
        ),
        EventType(
            "PagesDropped",
            "removed",
            (Field("medium", "tier", 1), Field("hashes", "pages", 2, required=True)),
        ),
        EventType("Emptied", "cleared"),
    ),
    media={
        "HBM": Medium("gpu"),
        "HOST": Medium("cpu"),
        "LAKE": Medium("lake", store_only=True),
    },
    recognised=lambda seen: True,  # nobody else has events of these names
    metrics=Metrics(
        rank_label="shard",
        samples={
            "prefix_cache_queries": ("quilt_tokens_sought",),
            "prefix_cache_hits": ("quilt_tokens_found", "quilt_found"),
            "kv_cache_usage": ("quilt_fill",),
        },
        labels={"capacity_blocks": ("quilt_setup", "pages"), "block_size": ("quilt_setup", "page_tokens")},
    ),
    may_reannounce=frozenset({"array"}),
    era_prefix="quilt-",
)
WITH_QUILT = combined((*ENGINES, QUILT))
RECEIVED_AT = 1_800_000_000.0

encode = msgspec.msgpack.encode


NAMES = Pseudonyms(b"a key of sessions")


def quilts(*, sessions: bool = False) -> Decoders:
    names = NAMES if sessions else None
    return Decoders(catalogue=WITH_QUILT, sessions=names, received_at=RECEIVED_AT)


def events_of(*events: Any, sessions: bool = False) -> list[Event]:
    """Return the events, which both decoders agree on."""
    return quilts(sessions=sessions).agreed(*events, quick=True)


SECRET = ["nobody's", {"business": [1]}]
KEPT_ARRAY = ["PageKept", SECRET, 32, "LAKE", [7, -8], 6, "knitted", SECRET, 3, "chat-1", SECRET]
KEPT_MAP = {
    "type": "PageKept",
    "asked": SECRET,
    "tokens_per_page": 32,
    "tier": "LAKE",
    "pages": [7, -8],
    "before": 6,
    "style": "knitted",
    "layer_set": 3,
    "chat": "chat-1",
}
KEPT = Stored(packed(7, -8), 32, 64, packed(6), "lake", None, 3, lora="knitted", store_only=True)


@pytest.mark.parametrize("event", [KEPT_ARRAY, KEPT_MAP, dict(reversed(KEPT_MAP.items()))])
def test_its_stores(event: Any) -> None:
    assert events_of(event) == [KEPT]
    (with_session,) = events_of(event, sessions=True)
    assert with_session == msgspec.structs.replace(KEPT, session=NAMES.name("chat-1"))


def test_what_it_need_not_say() -> None:
    plain = Stored(packed(7), 32, 32)
    assert events_of(["PageKept", None, 32, None, [7]]) == [plain]
    assert events_of({"type": "PageKept", "pages": [7], "tokens_per_page": 32}) == [plain]
    assert events_of(["PageKept", None, 32, "HBM", [7], None, {"a": "map"}]) == [
        msgspec.structs.replace(plain, raw_medium="HBM")
    ]


def test_its_removals_and_clears() -> None:
    arrays = [
        ["PagesDropped", "HOST", [1]],
        ["PagesDropped", "HOST", [2, 3], SECRET],
        ["PagesDropped", None, [4]],
        ["Emptied", SECRET],
    ]
    maps = [
        {"type": "PagesDropped", "tier": "HOST", "pages": [1]},
        {"pages": [2, 3], "type": "PagesDropped", "tier": "HOST", "block_hashes": [5]},
        {"type": "PagesDropped", "pages": [4]},
        {"type": "Emptied", "pages": [5]},
    ]
    for events in (arrays, maps):
        assert events_of(*events) == [
            Removed(packed(1, 2, 3), "cpu", "HOST"),
            Removed(packed(4)),
            Cleared(),
        ]


@pytest.mark.parametrize(
    ("event", "reason"),
    [
        (["PageKept", None, 32, "HBM"], "truncated_tuple"),
        ({"type": "PageKept", "block_hashes": [7], "tokens_per_page": 32}, "missing_field"),
        ({"type": "PageKept", "pages": [7], "block_size": 32}, "missing_field"),
        ({"type": "BlockStored", "pages": [7], "block_size": 32}, "missing_field"),
        (["PagesDropped", "HOST"], "truncated_tuple"),
        (["PagesDropped", [1], [1]], "bad_medium"),
        (["PagesDropped", [1], "HOST"], "bad_block_hashes"),
        (["PagesLost", "HOST", [1]], "unknown_type"),
    ],
)
def test_what_is_no_event_of_it(event: Any, reason: str) -> None:
    named = "PagesLost" if reason == "unknown_type" else None
    assert quilts().agreed(event, quick=False) == [Undecodable(reason, 3, event_type=named)]


MAPS_ONLY = combined(
    (
        Engine(
            "patch",
            (
                EventType(
                    "Sewn",
                    "stored",
                    (
                        Field("hashes", "hashes", required=True),
                        Field("block_size", "size", 1, required=True),
                        Field("lora_name", "style", 2, required=True),
                    ),
                    foreign_maps=frozenset({1, 2}),
                ),
            ),
            {},
            lambda seen: True,
        ),
    )
)


@pytest.mark.parametrize(
    ("event", "expected"),
    [
        ({"type": "Sewn", "hashes": [1], "size": 4, "style": None}, Stored(packed(1), 4, 4)),
        ({"type": "Sewn", "hashes": [1], "size": 4}, Undecodable("missing_field", 3, 2)),
        ({"type": "Sewn", "size": 4, "style": "x"}, Undecodable("missing_field", 3, 2)),
        (["Sewn", 4, "x"], Undecodable("missing_field", 3, 2)),
        (["Sewn", {}, {}], Undecodable("missing_field", 3, 2)),
        (["Sewn", 4], Undecodable("truncated_tuple", 3, 2)),
    ],
)
def test_an_engine_of_maps_alone(event: Any, expected: Event) -> None:
    decoders = Decoders(catalogue=MAPS_ONLY)
    assert decoders.agreed(event, event, quick=isinstance(expected, Stored))[0] == expected


def test_other_engines_mean_what_they_meant() -> None:
    vllm = ["BlockStored", [1], None, [], 16, None, "GPU", "ad", [None], 3, "mamba", 128]
    sglang = {"type": "BlockRemoved", "block_hashes": [1, 2], "medium": "CPU_PINNED"}
    assert events_of(vllm) == [Stored(packed(1), 16, 16, None, "gpu", None, 3, "mamba", 128, "ad")]
    assert events_of(sglang) == [Removed(packed(1, 2), "cpu", "CPU_PINNED")]
    assert Decoders().agreed(KEPT_ARRAY) == [Undecodable("unknown_type", 3, event_type="PageKept")]


SEED = encode(
    [
        1.5,
        [
            KEPT_ARRAY,
            ["PagesDropped", "HOST", [1]],
            KEPT_MAP,
            {"type": "PagesDropped", "pages": [4]},
            ["Emptied"],
        ],
        0,
    ]
)


def test_whatever_arrives_both_agree() -> None:
    mutants = [SEED]
    for at in range(len(SEED)):
        mutants.append(SEED[:at])
        for bit in range(8):
            mutant = bytearray(SEED)
            mutant[at] ^= 1 << bit
            mutants.append(bytes(mutant))
    decoders, done = quilts(), 0
    for seq, (mutant, scanned) in enumerate(zip(mutants, decoders.scanned(*mutants, first=0), strict=True)):
        try:
            expected = decoders.by_event(mutant, seq)
        except FrameError:
            expected = None
        assert decoders.single(mutant, seq) in (None, expected)
        assert scanned in (None, expected)
        done += scanned is not None
    assert done > len(mutants) // 10


def test_a_description_compiles_nothing_anew() -> None:
    signatures: list[Any] = cast(Any, transcode).signatures
    events_of(KEPT_ARRAY)
    before = list(signatures)
    payload = encode([1.5, [["BlockRemoved", [1]]], 0])
    for catalogue in (CATALOGUE, WITH_QUILT, combined((QUILT,))):
        Decoders(catalogue=catalogue).scan(payload)
    assert signatures == before


@pytest.mark.parametrize(
    ("event", "era", "may_reannounce"),
    [(KEPT_ARRAY, "quilt-array-11", True), (KEPT_MAP, "quilt-map", False)],
)
def test_it_is_recognised(event: Any, era: str, may_reannounce: bool) -> None:
    normaliser = Normaliser(max_frame_bytes=1 << 20, catalogue=WITH_QUILT)
    assert (normaliser.era.engine, normaliser.era.wire_era, normaliser.era.may_reannounce) == ("", "", None)
    result = normaliser.scan(Bundle.of([(b"t", bytes(8), encode([1.5, [event], 0]))]), RECEIVED_AT)
    assert result.columns[STATUS].tolist() == [DONE]
    assert (normaliser.era.engine, normaliser.era.wire_era) == ("quilt", era)
    assert normaliser.era.may_reannounce is may_reannounce


PAGE = """\
# TYPE quilt_tokens_sought_total counter
quilt_tokens_sought_total{shard="0"} 100.0
quilt_tokens_sought_total{shard="2"} 7.0
quilt_found{shard="0"} 40.0
quilt_fill{shard="0"} 0.25
quilt_fill_bucket{shard="0",le="1"} 9.0
# TYPE quilt_setup gauge
quilt_setup{shard="0",pages="4096",page_tokens="32"} 1.0
vllm_lookalike{shard="0"} 5
"""


def test_its_metrics() -> None:
    assert parse_engine_metrics(PAGE, WITH_QUILT).ranks == {
        0: EngineCounters(100, 40, None, None, 4096, 32, 0.25),
        2: EngineCounters(prefix_cache_queries=7),
    }
    assert parse_engine_metrics(PAGE).ranks == {}


# What the pipeline makes of its records, which are all that it sees.


def records(stores: Sequence[Any]) -> list[EventsRecord]:
    """Return a record for each store, as a connector stamps them."""
    normaliser = Normaliser(max_frame_bytes=1 << 20, catalogue=WITH_QUILT)
    result = []
    for seq, event in enumerate(stores):
        batch = normaliser.normalise(encode([RECEIVED_AT, [event], 0]), seq=seq, received_at=RECEIVED_AT)
        said = {"engine": normaliser.era.engine, "wire_era": normaliser.era.wire_era}
        told = record(batch, may_reannounce=normaliser.era.may_reannounce, **said)
        result.append(msgspec.msgpack.decode(encode(told), type=EventsRecord))
    return result


Held = dict[str, tuple[int, int, bool]]
"""By medium: entries, blocks, whether removals are not announced."""


def held(rows: Iterable[Any]) -> Held:
    return {
        row.medium: (row.entries, row.blocks, row.store_only) for row in rows if isinstance(row, OccupancyRow)
    }


def counted(log: Sequence[EventsRecord], *, restart: bool) -> Held:
    """Return what the agent's rows say, which are those of the recount."""
    agent, recount = ReplicaAgent(), SourceRecount("r", 0, Worker())
    for offset, said in enumerate(log):
        if restart:
            agent.moved(RECEIVED_AT)
        agent.apply(said)
        recount.apply(offset, said)
    result = held(agent.cut(RECEIVED_AT).rows)
    assert held(open_window(recount)) == result
    return result


AGAIN_ARRAY = ["PageKept", None, 32, "HBM", [7, 8], None]
AGAIN_MAP = {"type": "PageKept", "tokens_per_page": 32, "tier": "HBM", "pages": [7, 8]}


@pytest.mark.parametrize(("event", "entries"), [(AGAIN_ARRAY, 2), (AGAIN_MAP, 4)])
@pytest.mark.parametrize("restart", [False, True])
def test_what_it_announces_again_is_counted_by_its_trait(event: Any, entries: int, restart: bool) -> None:
    first, second = records([event, event])
    second.engine, second.wire_era, second.may_reannounce = "", "", None  # of a connector that just began
    assert counted([first, second], restart=restart) == {"gpu": (entries, 2, False)}


@pytest.mark.parametrize("restart", [False, True])
def test_its_store_only_tier_is_shown_as_one(restart: bool) -> None:
    log = records([KEPT_ARRAY, {**KEPT_MAP, "tier": "HOST"}])
    assert counted(log, restart=restart) == {"lake": (2, 2, True), "cpu": (2, 2, False)}
