"""A table that grows in steps holds in every step what one that was large from the beginning holds."""

from __future__ import annotations

import random
from collections.abc import Iterator

import numpy as np
import pytest

from pipeline.index.holdings import growing_rows
from pipeline.index.holdings.growing_rows import GrowingRows
from pipeline.index.holdings.holdings import Holdings
from pipeline.index.holdings.long_array import LongArray
from pipeline.index.holdings.rows import Rows, find_row, free_row
from pipeline.index.holdings.words import COPIES_MASK, NOTHING
from pipeline.reading.columns import Hashes
from pipeline.residency.counting.block_entries import BlockColumns
from tests.support.suite.night import night_rows

SLOTS = 20_000


def hashes(rng: random.Random, count: int) -> Hashes:
    return np.array([rng.getrandbits(64) for _ in range(count)], np.uint64)


def word_of(rows: GrowingRows, block: int) -> int:
    return int(rows.array[find_row(rows.array, np.uint64(block), rows.spread)]["word"])


def put(rows: GrowingRows, block: int, word: int) -> None:
    rows.array[find_row(rows.array, np.uint64(block), rows.spread)] = (block, word)


def take(rows: GrowingRows, block: int) -> None:
    free_row(rows.array, find_row(rows.array, np.uint64(block), rows.spread), rows.spread)


def contents(rows: Rows) -> dict[int, int]:
    return {int(row["hash"]): int(row["word"]) for row in rows if row["word"] != NOTHING}


def blocks_near_the_end(rows: GrowingRows, rng: random.Random) -> Iterator[int]:
    """Yield blocks whose rows go on from the first slot where those before have taken the last ones."""
    slots, factor = len(rows.array), int(rows.spread.factor)
    while True:
        block = rng.getrandbits(64)
        if (((block * factor % 2**64) >> 32) * slots) >> 32 >= slots - 3:
            yield block


@pytest.mark.parametrize(("seed", "slots"), [(3, 5_000), *night_rows(*((seed, SLOTS) for seed in range(3)))])
def test_every_step_finds_what_came_and_did_not_leave(
    seed: int, slots: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    if slots < growing_rows.STEP:
        monkeypatch.setattr(growing_rows, "STEP", slots * 7 // 10)
    rng = random.Random(seed)
    rows = GrowingRows(slots)
    near_the_end = blocks_near_the_end(rows, rng)
    expected = {int(block): 1 + at for at, block in enumerate(hashes(rng, int(slots * 0.79)))}
    expected |= {next(near_the_end): 9 for _ in range(6)}
    for block, word in expected.items():
        put(rows, block, word)
    rows.grow(slots * 4 // 3)
    steps = 0
    while rows.growing:
        for block in rng.sample([*expected], 40):
            del expected[block]
            take(rows, block)
        for block in hashes(rng, 60).tolist():
            expected[block] = rng.randint(1, 2**60)
            put(rows, block, expected[block])
        assert {block: word_of(rows, block) for block in expected} == expected
        assert contents(rows.array) == expected
        rows.go_on(rng.choice([1, 100, 300]))
        steps += 1
    assert steps > 5
    assert {block: word_of(rows, block) for block in expected} == expected
    assert len(rows.array) == slots * 4 // 3


def test_it_grows_again_before_it_has_grown() -> None:
    rng = random.Random(5)
    rows = GrowingRows(SLOTS)
    expected = {int(block): 7 for block in hashes(rng, int(SLOTS * 0.7))}
    for block in expected:
        put(rows, block, 7)
    rows.grow(SLOTS * 2)
    rows.go_on(10)
    rows.grow(SLOTS * 3)
    assert {block: word_of(rows, block) for block in expected} == expected
    rows.go_on(SLOTS * 3)
    assert not rows.growing
    assert {block: word_of(rows, block) for block in expected} == expected


def columns(blocks: Hashes, copies: int) -> BlockColumns:
    count = len(blocks)
    nothing = np.zeros(count, np.uint64)
    short = np.zeros(count, np.uint16)
    return BlockColumns(
        blocks, np.full(count, copies, np.int32), np.zeros(count), short, nothing, short, nothing
    )


def test_steps_end_with_what_growth_at_once_ends_with() -> None:
    """Blocks come and leave in small portions; the other table had room for all of them."""
    rng = random.Random(11)
    in_steps, at_once = Holdings(), Holdings()
    at_once.make_room(100_000)
    tables = in_steps, at_once
    pools = [[one.new_pool(one.new_source(0), tier=0, group=0) for _ in range(2)] for one in tables]
    there: list[dict[int, int]] = [{}, {}]
    sizes = set()
    for _ in range(600):
        which = rng.randrange(2)
        fresh = hashes(rng, rng.randint(1, 200))
        of_other = rng.sample([*there[1 - which]], min(30, len(there[1 - which])))
        gone = rng.sample([*there[which]], len(there[which]) // 20)
        for blocks, copies in (
            (np.concatenate((fresh, np.array(of_other, np.uint64))), rng.randint(1, 5)),
            (np.array(gone, np.uint64), 0),
        ):
            for one, numbers in zip(tables, pools, strict=True):
                one.put(numbers[which], columns(blocks, copies))
            for block in blocks.tolist():
                if copies:
                    there[which][block] = copies
                else:
                    del there[which][block]
        sizes.add(in_steps.bytes_allocated)
    assert len(sizes) > 4
    for one, numbers in zip(tables, pools, strict=True):
        for pool, expected in zip(numbers, there, strict=True):
            blocks, words = one.blocks_of(pool)
            assert dict(zip(blocks.tolist(), (words & COPIES_MASK).tolist(), strict=True)) == expected
            assert {block: one.word(pool, block) & int(COPIES_MASK) for block in expected} == expected


@pytest.mark.parametrize("held", [False, True])
@pytest.mark.parametrize("lengths", [(10, 1_000), (300_000, 400_001)])
def test_a_longer_array_begins_with_the_shorter_one(lengths: tuple[int, int], held: bool) -> None:
    """Also where somebody looks at its memory, which cannot move then."""
    before, after = lengths
    one = LongArray(before, np.uint64)
    one.array[:] = np.arange(before)
    holder = one.array if held else None
    one.lengthen(after)
    assert one.array.tolist() == [*range(before), *[0] * (after - before)]
    if holder is not None:
        assert holder.tolist() == [*range(before)]
