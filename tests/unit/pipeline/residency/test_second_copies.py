"""Prompts that are computed again and those that are announced again look alike until a block leaves."""

from __future__ import annotations

import pytest

from pipeline.index.following.partition import IndexedPartition
from pipeline.index.following.sources import Sources
from pipeline.residency.counting.pool import Pool
from pipeline.residency.source import SourceResidency
from pipeline.verify.replica.copies import Copies
from pipeline.verify.replica.source import SourceRecount
from schemas.events import Cleared, Event, Removed, Stored
from schemas.hashes import unpack_hashes
from schemas.residency import FILLS
from schemas.rows import OccupancyRow
from schemas.settings import Worker
from tests.support.in_parts import as_read
from tests.support.inputs.copying_engine import BEGAN, SIZE, CopyingEngine
from tests.support.inputs.event_records import sent
from tests.support.inputs.packed import packed
from tests.support.replica_agent import ReplicaAgent, changes_of, rows_of
from tests.support.suite.night import first_by_day


def copies_of(source: SourceResidency) -> dict[int, int]:
    """Return how many copies of each block count."""
    source.pools.settle()
    [pool] = source.pools
    assert isinstance(pool, Pool)
    live = pool.copies.live()
    return dict(zip(live["hash"].tolist(), live["copies"].tolist(), strict=True))


@pytest.mark.parametrize("linked", [False, True])
@pytest.mark.parametrize("seed", first_by_day(range(40), 8))
def test_second_copies_count_from_the_first_removal_on_that_proves_them(seed: int, linked: bool) -> None:
    engine = CopyingEngine(seed, linked=linked)
    settings = Worker()
    lived, moved = ReplicaAgent(settings), ReplicaAgent(settings)
    recount = SourceRecount("r", 0, settings)
    index = IndexedPartition(0, settings, Sources())
    told: set[int] = set()
    proofs = 0
    for offset in range(100):
        said = engine.record()
        lived.apply(said)
        moved.apply(said)
        for part in changes_of(moved.moved(engine.at)):
            for block, kind in zip(unpack_hashes(part.hashes), part.kinds, strict=True):
                assert (block in told) == (kind not in FILLS)
                told ^= {block}
        recount.apply(offset, said)
        index.apply(offset, as_read(offset, said))
        index.settle()
        if engine.rng.random() < 0.3:
            index = IndexedPartition(0, settings, Sources())
            index.load(moved.latest)
        source = moved.source()
        found = copies_of(source)
        assert found == copies_of(lived.source()) == copies_of(index.sources["r", 0])
        [pool] = recount.pools.values()
        assert isinstance(pool, Copies)
        assert found == {one: len(block.sizes) for one, block in pool.blocks.items()}
        assert told == {*pool.named(pool.blocks)}
        [row] = source.occupancy()
        assert row.at_least == pool.at_least
        assert source.overall_trust().trust == recount.trust.of("gpu").trust == "complete"
        if row.at_least:
            assert all(copies <= engine.copies[one] for one, copies in found.items())
        else:
            assert found == +engine.copies
        assert source.head.copies_proved == recount.life.copies_proved
        assert source.head.remarks == []
        proofs += source.head.copies_proved
    assert proofs


@pytest.mark.parametrize("seed", first_by_day(range(20), 4))
def test_what_is_only_announced_again_counts_once(seed: int) -> None:
    engine = CopyingEngine(seed, announces=True)
    agent = ReplicaAgent()
    again = 0
    for _ in range(50):
        agent.apply(engine.record())
        if engine.rng.random() < 0.3:
            agent.moved(engine.at)
        source = agent.source()
        assert copies_of(source) == +engine.copies
        [row] = source.occupancy()
        again += row.at_least
        assert not source.head.copies_proved
        assert source.overall_trust().trust == "complete"
    assert again


def applied(settings: Worker, *said: list[Event]) -> tuple[ReplicaAgent, SourceRecount]:
    agent, recount = ReplicaAgent(settings), SourceRecount("r", 0, settings)
    for seq, events in enumerate(said):
        one = sent(seq, BEGAN + seq, *events)
        one.may_reannounce = True
        agent.apply(one)
        recount.apply(seq, one)
    return agent, recount


def test_more_blocks_than_are_remembered_prove_a_contradiction() -> None:
    settings = Worker(max_itemised_blocks=2)
    store, gone = Stored(packed(1, 2, 3), SIZE, 3 * SIZE), Removed(packed(1))
    agent, recount = applied(settings, [store], [store], [gone], [gone])
    source = agent.source()
    assert source.overall_trust().trust == recount.trust.of("gpu").trust == "degraded"
    assert source.head.remarks == recount.life.remarks == ["contradiction"]
    [row] = source.occupancy()
    assert (row.entries, row.at_least) == (2, True)
    assert agent.state.take_gave_up_repeats() == {"too_many": 1}
    assert not agent.state.take_gave_up_repeats()


def test_what_a_pool_gave_up_counts_though_its_source_is_forgotten_before_the_cut() -> None:
    store = Stored(packed(1, 2, 3), SIZE, 3 * SIZE)
    agent, _ = applied(Worker(max_itemised_blocks=2), [store], [store])
    agent.state._forget(("r", 0), 2)
    agent.cut(BEGAN + 10)
    assert not agent.state.sources
    assert agent.state.take_gave_up_repeats() == {"too_many": 1}


def test_a_block_that_comes_again_in_another_size_proves_nothing_later() -> None:
    store, other = Stored(packed(1), SIZE, SIZE), Stored(packed(1), 2 * SIZE, 2 * SIZE)
    agent, recount = applied(Worker(), [store], [store], [other], [Removed(packed(1))], [Removed(packed(1))])
    agent.source().pools.settle()
    assert agent.state.take_gave_up_repeats() == {"several_sizes": 1}
    assert agent.source().overall_trust().trust == recount.trust.of("gpu").trust == "degraded"


def test_a_clear_begins_to_remember_anew() -> None:
    settings = Worker(max_itemised_blocks=2)
    store, gone = Stored(packed(1, 2, 3), SIZE, 3 * SIZE), Removed(packed(5))
    small = Stored(packed(5, 6), SIZE, 2 * SIZE)
    agent, recount = applied(settings, [store], [store], [Cleared()], [small], [small], [gone], [gone])
    source = agent.source()
    assert source.overall_trust().trust == recount.trust.of("gpu").trust == "complete"
    assert copies_of(source) == {6: 2}


def test_figures_before_the_proof_are_bounds_and_exact_behind_it() -> None:
    store, gone = Stored(packed(1, 2, 3), SIZE, 3 * SIZE), Removed(packed(2))
    agent, _ = applied(Worker(), [store], [store, store])
    [before] = rows_of(agent.cut(BEGAN), OccupancyRow)
    assert (before.entries, before.blocks, before.tokens, before.at_least) == (3, 3, 48, True)
    agent, recount = applied(Worker(), [store], [store, store], [gone, gone], [store])
    [row] = rows_of(agent.cut(BEGAN), OccupancyRow)
    assert (row.entries, row.blocks, row.tokens, row.at_least, row.trust) == (10, 3, 48, False, "complete")
    [(_, _, held)] = recount.held(BEGAN)
    assert (held.entries, held.blocks, held.tokens) == (10, 3, 48)
    flow = agent.flow()["gpu", 0]
    assert flow.stored_blocks - flow.removed_blocks == row.entries
    assert flow.filled_blocks - flow.evicted_blocks == row.blocks
