"""Sums over the pairs of a base, as compiled code, to compare with its blocks and its clock."""

from __future__ import annotations

import numpy as np

from connectors.process.compiled import compiled_nogil, fetch_ahead
from pipeline.fleet.kernel.tables import (
    ANNOUNCED,
    FETCHED_AHEAD,
    HAS_LOSS,
    I64,
    MEDIA,
    MEDIA_BITS,
    RECEIVED,
    Blocks,
    Keys,
    Pairs,
    find_block,
    home_of_block,
)


@compiled_nogil
def put_keys(blocks: Blocks, keys: Keys) -> bool:
    """Put the keys of blocks into the empty, large enough `keys`; return False if one is zero or repeated."""
    for row in range(len(blocks)):
        key = blocks[row].key
        slot = find_block(keys, key)
        if key == np.uint64(0) or slot >= 0:
            return False
        keys[-1 - slot].key = key
    return True


@compiled_nogil
def sum_pairs(
    pairs: Pairs, keys: Keys, first_loss: int, losses: int, of_source: I64
) -> tuple[int, int, int, int, int, int]:
    """Return six counts, and count each source's pairs in `of_source`.

    The counts: invalid pairs; media that pairs hold their block on; pairs that hold it on a medium whose
    removals are announced; pairs with a loss; the second and third again, of pairs marked as received.
    A valid pair has a medium or a loss, and is marked as received only with a medium. Its loss is one of the
    `losses` from number `first_loss` on. Its block is in `keys`, unless it has no loss and is held only where
    removals are not announced.
    """
    wrong, held, announced, lost, received, received_announced = 0, 0, 0, 0, 0, 0
    fetched = 0
    for row in range(len(pairs)):
        while fetched < min(row + FETCHED_AHEAD, len(pairs)):
            fetch_ahead(keys, home_of_block(keys, pairs[fetched].key))
            fetched += 1
        key, media = pairs[row].key, np.int64(pairs[row].media)
        of_source[pairs[row].source] += 1
        if media == 0 or media & (MEDIA | RECEIVED) == RECEIVED or key == np.uint64(0):
            wrong += 1
            continue
        media_held = 0
        for bit in range(MEDIA_BITS):
            media_held += media >> bit & 1
        held += media_held
        if media & ANNOUNCED:
            announced += 1
        if media & RECEIVED:
            received += media_held
            if media & ANNOUNCED:
                received_announced += 1
        if media & HAS_LOSS:
            lost += 1
            if ((np.int64(pairs[row].position) - first_loss) & 0xFFFFFFFF) >= losses:
                wrong += 1
        if media & (ANNOUNCED | HAS_LOSS) and find_block(keys, key) < 0:
            wrong += 1
    return wrong, held, announced, lost, received, received_announced
