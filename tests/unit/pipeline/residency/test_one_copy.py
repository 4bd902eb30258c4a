"""Engines that know one copy of each block: a set is all there is to keep, whatever they announce again."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from pipeline.verify.replica.source import SourceRecount
from schemas.events import Cleared, Event, EventsRecord, Removed, Stored
from schemas.settings import Worker
from tests.support.inputs import event_records
from tests.support.inputs.packed import packed
from tests.support.replica_agent import ReplicaAgent

NOW = 1_800_000_000.0
BLOCKS = 40


def sent(number: int, *events: Event, one_copy: bool = True) -> EventsRecord:
    return event_records.sent(number, NOW + number / 100, *events, engine="atom", one_copy=one_copy)


class Walk:
    """Random stores, also of several sizes and with a block twice, and removals of what is there."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.held: dict[str, set[int]] = {"gpu": set(), "cpu": set()}
        self.repeated: Counter[str] = Counter()

    def events(self) -> list[Event]:
        return [self._event() for _ in range(self.rng.randrange(1, 6))]

    def _event(self) -> Event:
        rng = self.rng
        medium = rng.choice(list(self.held))
        held = self.held[medium]
        if rng.random() < 0.02:
            held.clear()
            return Cleared(medium)
        if held and rng.random() < 0.4:
            gone = rng.sample(sorted(held), min(len(held), rng.randrange(1, 4)))
            held.difference_update(gone)
            return Removed(packed(*gone), medium)
        hashes = [rng.randrange(1, BLOCKS) for _ in range(rng.randrange(1, 6))]
        self.repeated[medium] += len(hashes) - len({*hashes} - held)
        held.update(hashes)
        size = rng.choice((16, 16, 16, 32))
        parent = rng.choice((None, packed(rng.randrange(1, BLOCKS))))
        return Stored(packed(*hashes), size, size * len(hashes), parent, medium)


@pytest.mark.parametrize("seed", range(4))
def test_what_is_held_is_a_set_also_after_a_restart_and_in_the_recount(seed: int) -> None:
    walk, agent, recount = Walk(seed), ReplicaAgent(), SourceRecount("r", 0, Worker())
    again: Counter[str] = Counter()

    def add(_window: int) -> None:
        for (medium, _), pool in recount.pools.items():
            again[medium] += pool.flow.reannounced_blocks

    recount.on_window_closed = add
    for number in range(300):
        said = sent(number, *walk.events())
        agent.apply(said)
        recount.apply(number, said)
        if number % 50 == 49:
            agent.moved(NOW + number / 100)
        expected = {medium: len(blocks) for medium, blocks in walk.held.items()}
        counted: Counter[str] = Counter()
        for row in agent.source().occupancy():
            assert row.entries == row.blocks
            counted[row.medium] += row.blocks
        assert {medium: counted[medium] for medium in expected} == expected
        recounted: Counter[str] = Counter()
        for medium, _, held in recount.held(NOW):
            recounted[medium] += held.entries
        assert {medium: recounted[medium] for medium in expected} == expected
    add(0)
    assert again == walk.repeated


def test_a_store_counts_again_once_the_engine_is_another_one() -> None:
    agent, store = ReplicaAgent(), Stored(packed(1), 16, 16)
    agent.apply(
        *(sent(number, store, one_copy=one_copy) for number, one_copy in enumerate((True, True, False)))
    )
    [row] = agent.source().occupancy()
    assert (row.entries, row.blocks) == (2, 1)


@pytest.mark.parametrize(
    ("sizes", "then", "expected"),
    [
        ((64, 256), 128, {64, 128}),
        ((64, 256), 32, {32, 64}),
        ((64, 16, 32), 128, {16, 32}),  # not 16 and 128
        ((64, 256), 0, {0, 64, 256}),
        ((64, 256), 3, {3, 64, 256}),
        ((64, 256), 2**32 - 1, {64, 256, 2**32 - 1}),
        ((48, 64), 192, {48, 192}),
    ],
)
def test_sizes_announced_meanwhile_count_with_the_first_store_of_another_size_that_overlaps(
    sizes: tuple[int, ...], then: int, expected: set[int]
) -> None:
    """Whatever a worker has in its memory, and whatever it has of a checkpoint."""
    in_memory, restored, recount = ReplicaAgent(), ReplicaAgent(), SourceRecount("r", 0, Worker())
    for number, size in enumerate((*sizes, then)):
        said = sent(number, Stored(packed(2 * number, 2 * number + 1), size), one_copy=size != then)
        in_memory.apply(said)
        restored.apply(said)
        recount.apply(number, said)
        restored.moved(NOW)
    for agent in (in_memory, restored):
        assert {row.block_size for row in agent.source().occupancy()} == expected
    assert {held.block_size for _, _, held in recount.held(NOW)} == expected
