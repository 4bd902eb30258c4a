"""Losses of blocks that are remembered, as compiled code: a ghost is the last loss of a block by a source."""

from __future__ import annotations

import numpy as np

from pipeline.compiled import compiled
from pipeline.fleet.columns import Changes
from pipeline.fleet.counts import GHOSTS, HEAD, TAIL, USED_BLOCKS, USED_PAIRS, Clock
from pipeline.fleet.index import (
    GHOST,
    I64,
    Blocks,
    Losses,
    Pairs,
    find_block,
    find_pair,
    free_block,
    free_pair,
)
from schemas.residency import CLEARED


@compiled
def free_if_unused(blocks: Blocks, slot: int, counters: I64) -> None:
    if (
        blocks[slot].owners == 0
        and blocks[slot].holders == 0
        and blocks[slot].evicted == 0
        and blocks[slot].cleared == 0
    ):
        free_block(blocks, slot)
        counters[USED_BLOCKS] -= 1


@compiled
def forget_ghost(blocks: Blocks, block: int, cleared: bool, counters: I64) -> None:
    """Take a ghost off its block's counts."""
    if cleared:
        blocks[block].cleared -= 1
    else:
        blocks[block].evicted -= 1
    counters[GHOSTS] -= 1


@compiled
def release_pair(pairs: Pairs, pair: int, clock: Clock) -> None:
    clock.pairs_of_source[pairs[pair].source] -= 1
    clock.counters[USED_PAIRS] -= 1
    free_pair(pairs, pair)


@compiled
def drop_oldest_loss(blocks: Blocks, pairs: Pairs, losses: Losses, clock: Clock) -> None:
    counters = clock.counters
    number = counters[HEAD]
    counters[HEAD] += 1
    slot = number & (len(losses) - 1)
    pair = find_pair(pairs, losses[slot].key, losses[slot].source)
    if pair < 0 or not pairs[pair].media & GHOST or pairs[pair].position != np.uint32(number & 0xFFFFFFFF):
        return
    pairs[pair].media &= 0xFFFF ^ GHOST
    if pairs[pair].media == 0:
        release_pair(pairs, pair, clock)
    block = find_block(blocks, losses[slot].key)
    forget_ghost(blocks, block, losses[slot].cleared != 0, counters)
    free_if_unused(blocks, block, counters)


@compiled
def remember_loss(
    blocks: Blocks,
    pairs: Pairs,
    losses: Losses,
    clock: Clock,
    pair: int,
    block: int,
    changes: Changes,
    at: int,
    life: int,
    ghosts: int,
) -> None:
    """Remember that the pair's source lost the block from its GPU."""
    counters = clock.counters
    cleared = changes.kinds[at] == CLEARED
    # First, so that the block stays in its table while older losses of it are dropped.
    if cleared:
        blocks[block].cleared += 1
    else:
        blocks[block].evicted += 1
        blocks[block].evicted_at = changes.times[at]
    while counters[TAIL] - counters[HEAD] >= ghosts:
        return_to = pairs[pair].key
        source = pairs[pair].source
        drop_oldest_loss(blocks, pairs, losses, clock)
        # Slots may have moved.
        pair = find_pair(pairs, return_to, source)
    number = counters[TAIL]
    counters[TAIL] += 1
    slot = number & (len(losses) - 1)
    losses[slot].key = pairs[pair].key
    losses[slot].source = pairs[pair].source
    losses[slot].life = life
    losses[slot].cleared = 1 if cleared else 0
    losses[slot].time = changes.times[at]
    losses[slot].stored = changes.stored[at]
    pairs[pair].media |= GHOST
    pairs[pair].position = np.uint32(number & 0xFFFFFFFF)
    counters[GHOSTS] += 1
    if cleared:
        clock.clears_of_source[pairs[pair].source] = number + 1
