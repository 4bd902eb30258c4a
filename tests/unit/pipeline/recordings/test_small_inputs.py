"""Small streams that were once counted wrong, against what their publishers held."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

import pytest

from connectors.scrape.counters import parse_engine_metrics
from pipeline.recordings.analysis import Analysis
from pipeline.recordings.events import RecordedEvents
from pipeline.residency.source import SourceResidency
from pipeline.verify.replica.source import SourceRecount
from schemas.events import Batch, Removed, Stored
from schemas.rows import OccupancyRow
from schemas.settings import Worker
from tests.support.checkout import CAPTURES
from tests.support.replica_agent import ReplicaAgent, rows_of

SMALL = CAPTURES / "small"


def analysed(path: Path) -> list[dict[str, Any]]:
    analysis = Analysis(path)
    analysis.finish()
    return [
        {key: row[key] for key in ("medium", "physical", "distinct", "tokens", "trust")}
        for row in analysis.summary()
    ]


def applied(path: Path, settings: Worker | None = None) -> SourceResidency:
    agent = ReplicaAgent(settings)
    agent.apply(*RecordedEvents(path))
    [source] = agent.state.sources.values()
    source.pools.settle()
    return source


def engine_of(path: Path) -> str:
    return [record.engine for record in RecordedEvents(path)][-1]


def test_atom_with_numbers_keeps_one_copy_of_each_block() -> None:
    """Then every block that its block manager holds is evicted once."""
    path = SMALL / "e1-atom-numbered.frames.msgpack.gz"
    assert engine_of(path) == "atom"
    held = [line["media"]["gpu"] for line in Analysis(path).every_batch()]
    assert {figures["physical"] == figures["distinct"] for figures in held} == {True}
    assert held[-95]["physical"] == 94
    assert analysed(path) == [
        {"medium": "gpu", "physical": 0, "distinct": 0, "tokens": 0, "trust": "complete"},
        # Blocks of other hosts, which are announced as they come and never again.
        {"medium": "remote", "physical": 6, "distinct": 6, "tokens": 96, "trust": "complete"},
    ]


def test_a_simulators_maps_are_of_no_known_engine() -> None:
    path = SMALL / "e2-sim-map.frames.msgpack.gz"
    assert engine_of(path) == ""
    assert analysed(path) == [
        {"medium": "gpu", "physical": 35, "distinct": 35, "tokens": 35 * 16, "trust": "complete"}
    ]


@pytest.mark.parametrize(
    ("name", "engine", "held", "bounds"),
    [
        # Four stored, its list has room for three; one leaves and comes again. Its reset says nothing.
        ("umbp-vllm-0.33.0", "vllm", {("cpu", 0): (3, 3)}, set()),
        # Two on the GPU, three on the host, where one makes room for another. Three clears name nothing.
        ("hisparse-vllm-0.33.0", "vllm", {("gpu", 0): (0, 0), ("cpu", 1): (3, 3)}, set()),
        # It holds 8 blocks. Two that a second prompt shared were announced twice, and left once.
        ("flexkv-34ab141", "flexkv", {("cpu", 0): (8, 8)}, set()),
        # Four in a pool that drops them, all again, and three of them beside another engine's first one.
        ("ascendstore-182b75ea", "", {("cpu", 0): (4, 4)}, {"cpu"}),
    ],
)
def test_publishers_beside_vllm(
    name: str, engine: str, held: dict[tuple[str, int], tuple[int, int]], bounds: set[str]
) -> None:
    path = SMALL / f"{name}.frames.msgpack.gz"
    assert engine_of(path) == engine
    source = applied(path)
    recount = SourceRecount("r", 0, Worker())
    for offset, record in enumerate(RecordedEvents(path)):
        recount.apply(offset, record)
    rows = source.occupancy()
    assert {(row.medium, row.group_idx): (row.entries, row.blocks) for row in rows} == held
    assert {row.medium for row in rows if row.store_only} == bounds
    assert {row.tokens for row in rows} == {16 * row.blocks for row in rows}
    again = recount.held(0.0)
    assert {(medium, group): (one.entries, one.blocks) for medium, group, one in again} == held


def test_pages_that_are_not_full_hold_the_tokens_that_they_have() -> None:
    path = SMALL / "g2-smallest.kvrec"
    assert engine_of(path) == "tokenspeed"
    assert analysed(path) == [
        {"medium": "gpu", "physical": 2, "distinct": 2, "tokens": 20, "trust": "complete"}
    ]


@pytest.mark.parametrize(
    ("name", "reannounced", "entries", "blocks", "tokens"),
    [
        ("g1-smallest", "off", 5, 3, 48),
        ("g1-prompt-logprobs", "off", 198, 107, 3424),
        ("g1-prompt-logprobs", "auto", 198, 107, 3424),
    ],
)
def test_prompts_that_are_computed_again_are_second_copies(
    name: str, reannounced: Literal["auto", "off"], entries: int, blocks: int, tokens: int
) -> None:
    """vLLM with `prompt_logprobs`; the larger one is a live engine's, with what its block pool held.

    By default removals tell them, of which the smaller one has none of a second copy.
    """
    source = applied(SMALL / f"{name}.kvrec", Worker(reannounced=reannounced))
    [pool] = source.pools
    [size] = pool.head.block_sizes
    held = sum(pool.head.blocks)
    assert (sum(pool.head.entries), held, held * size) == (entries, blocks, tokens)
    assert source.overall_trust().trust == "complete"
    assert not any(part.at_least for part in source.occupancy())


def test_where_a_prompt_was_announced_again_figures_are_lower_bounds() -> None:
    [held] = applied(SMALL / "g1-smallest.kvrec").occupancy()
    assert held.at_least
    assert held.entries <= 5
    assert held.blocks <= 3


def test_copies_that_were_taken_for_announcements_are_told_by_their_removals() -> None:
    assert analysed(SMALL / "g1-prompt-logprobs.kvrec") == [
        {"medium": "gpu", "physical": 198, "distinct": 107, "tokens": 3424, "trust": "complete"}
    ]


def test_a_partial_tail_counts_by_itself_as_often_as_it_is_announced() -> None:
    """It is announced with the size of a hash unit, and again when its block is full already: bounds."""
    held = [
        line["media"]["gpu"] for line in Analysis(SMALL / "e4-partial-again.frames.msgpack.gz").every_batch()
    ]
    assert [figures["distinct"] for figures in held] == [1, 2, 2, 3]


@pytest.mark.parametrize(
    ("tokens", "usage", "removed", "capacity"),
    [
        (12_800, 0.9, 0, 100),  # of all ranks: else more were in use than are held
        (6_400, 0.9, 0, 100),  # of one rank: more are held than these tokens
        (12_800, 0.1, 60, 0),  # either: left out
    ],
)
def test_a_capacity_in_pages_of_another_size_than_the_blocks(
    tokens: int, usage: float, removed: int, capacity: int
) -> None:
    """SGLang with two ranks of context parallelism: pages of 64 tokens, blocks of 128."""
    page = (SMALL / "e5b-sglang-dcp2-logical.prom").read_text()
    page = page.replace("12800.0", f"{tokens}.0").replace(" 0.9", f" {usage}")
    counters = parse_engine_metrics(page).ranks[0]
    records = list(RecordedEvents(SMALL / "e5-sglang-dcp2.frames.msgpack.gz"))
    last = records[-1].batches[-1]
    [stored] = last.events
    assert isinstance(stored, Stored)
    assert last.seq is not None
    gone = [Removed(stored.hashes[: 8 * removed])] if removed else []
    records[-1].batches += [
        Batch(last.seq + 1, last.ts, last.received_at, [*gone], len(gone)),
        Batch(None, last.ts, last.ts, [counters]),
    ]
    records[-1].last_seq = last.seq + 1
    agent, recount = ReplicaAgent(), SourceRecount(records[0].replica, 0, Worker())
    agent.apply(*records)
    for offset, record in enumerate(records):
        recount.apply(offset, record)
    [row] = rows_of(agent.cut(last.ts), OccupancyRow)
    assert (row.entries, row.block_size, row.capacity_blocks) == (100 - removed, 128, capacity)
    assert recount.capacity_blocks == capacity
