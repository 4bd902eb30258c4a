"""What the compiled loops say of a base's blocks and pairs, against a count in plain Python."""

from __future__ import annotations

import random

import numpy as np
import pytest

from pipeline.fleet.kernel.sums import put_keys, sum_pairs
from pipeline.fleet.kernel.tables import (
    ANNOUNCED,
    BLOCK,
    HAS_LOSS,
    KEY,
    PAIR,
    RECEIVED,
    STORE_ONLY_BIT,
    capacity_for,
)

GPU, STORE_ONLY = 1, 1 << STORE_ONLY_BIT
Row = tuple[int, int, int, int]
"""Key, position, source and media of a pair."""


def keys_in(blocks: list[int]) -> tuple[bool, np.ndarray]:
    rows = np.zeros(len(blocks), BLOCK)
    rows["key"] = blocks
    keys = np.zeros(capacity_for(len(blocks)), KEY)
    return put_keys(rows, keys), keys


def told(
    pairs: list[Row], blocks: list[int], *, first: int, losses: int
) -> tuple[int, int, int, int, int, int, list[int]]:
    _, keys = keys_in(blocks)
    of_source = np.zeros(4, np.int64)
    return *sum_pairs(np.array(pairs, PAIR), keys, first, losses, of_source), of_source.tolist()


def counted(
    pairs: list[Row], blocks: set[int], *, first: int, losses: int
) -> tuple[int, int, int, int, int, int, list[int]]:
    numbers = {number & 0xFFFFFFFF for number in range(first, first + losses)}
    wrong = held = announced = lost = received = received_announced = 0
    of_source = [0] * 4
    for key, position, source, media in pairs:
        of_source[source] += 1
        media_held = f"{media & 0x3FFF:b}".count("1")
        if not media or not key or (media & RECEIVED and not media_held):
            wrong += 1
            continue
        held += media_held
        announced += bool(media & ANNOUNCED)
        received += media_held if media & RECEIVED else 0
        received_announced += bool(media & RECEIVED and media & ANNOUNCED)
        lost += bool(media & HAS_LOSS)
        wrong += bool(media & HAS_LOSS and position not in numbers)
        wrong += bool(media & (ANNOUNCED | HAS_LOSS) and key not in blocks)
    return wrong, held, announced, lost, received, received_announced, of_source


@pytest.mark.parametrize("seed", range(20))
def test_sums_of_any_pairs_are_those_of_a_count(seed: int) -> None:
    rng = random.Random(seed)
    # Keys that differ only below the bits that the search begins with lie in one row.
    blocks = rng.sample(range(1, 400), 120) + [number << 24 for number in rng.sample(range(1, 999), 80)]
    # Numbers of losses count on where 32 bits of them are over.
    first, losses = rng.choice([(0, 50), (2**32 - 20, 50), (7, 0)])
    pairs = [
        (
            rng.choice([*blocks, rng.randrange(500)]),
            rng.choice([first + rng.randrange(60), rng.randrange(2**32)]) & 0xFFFFFFFF,
            rng.randrange(4),
            rng.choice([0, GPU, STORE_ONLY, HAS_LOSS, HAS_LOSS | STORE_ONLY, rng.randrange(2**16)]),
        )
        for _ in range(300)
    ]
    assert told(pairs, blocks, first=first, losses=losses) == counted(
        pairs, {*blocks}, first=first, losses=losses
    )


@pytest.mark.parametrize(
    ("pair", "wrong"),
    [
        ((5, 0, 1, GPU), 0),
        ((6, 0, 1, GPU), 1),
        ((6, 0, 1, STORE_ONLY), 0),
        ((5, 13, 1, HAS_LOSS), 0),
        ((5, 14, 1, HAS_LOSS), 1),
        ((5, 9, 1, HAS_LOSS), 1),
        ((5, 0, 1, 0), 1),
        ((5, 0, 1, RECEIVED | GPU), 0),
        ((5, 0, 1, RECEIVED), 1),
        ((5, 13, 1, RECEIVED | HAS_LOSS), 1),
        ((0, 0, 1, GPU), 1),
    ],
)
def test_a_pair_that_cannot_be_is_told(pair: Row, wrong: int) -> None:
    assert told([pair], [5], first=10, losses=4)[0] == wrong


def test_keys_of_blocks_are_put_unless_one_is_zero_or_there_twice() -> None:
    fits, keys = keys_in([3, 3 << 40, 9])
    assert fits
    assert sorted(keys["key"][keys["key"] != 0].tolist()) == [3, 9, 3 << 40]
    assert keys_in([])[0]
    assert not keys_in([3, 0, 9])[0]
    assert not keys_in([3, 9, 3])[0]
