"""Remembered losses of blocks, as compiled code: the last one of each block by each source."""

from __future__ import annotations

import numpy as np

from connectors.process.compiled import compiled, inlined
from pipeline.fleet.kernel.columns import Changes
from pipeline.fleet.kernel.counts import HEAD, LOSSES, TAIL, USED_BLOCKS, USED_PAIRS, Clock
from pipeline.fleet.kernel.tables import (
    HAS_LOSS,
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
def uncount_loss(blocks: Blocks, block: int, cleared: bool, received: int, counters: I64) -> None:
    """Subtract a loss from its block's counts."""
    if cleared:
        blocks[block].cleared -= 1
    else:
        blocks[block].evicted -= 1
        blocks[block].received_evicted -= received
    counters[LOSSES] -= 1


@inlined
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
    pair = find_pair(pairs, (losses[slot].key, np.int64(losses[slot].source)))
    if pair < 0 or not pairs[pair].media & HAS_LOSS or pairs[pair].position != np.uint32(number & 0xFFFFFFFF):
        return
    pairs[pair].media &= 0xFFFF ^ HAS_LOSS
    if pairs[pair].media == 0:
        release_pair(pairs, pair, clock)
    block = find_block(blocks, losses[slot].key)
    uncount_loss(blocks, block, losses[slot].cleared != 0, np.int64(losses[slot].received), counters)
    free_if_unused(blocks, block, counters)


@inlined
def remember_loss(
    blocks: Blocks,
    pairs: Pairs,
    losses: Losses,
    clock: Clock,
    pair: int,
    block: int,
    changes: Changes,
    at: int,
    received: int,
    life: int,
    max_losses: int,
) -> None:
    """Remember that the pair's source lost the block from its GPU."""
    counters = clock.counters
    cleared = changes.kinds[at] == CLEARED
    # First, so that the block stays in its table while older losses of it are dropped.
    if cleared:
        blocks[block].cleared += 1
    else:
        blocks[block].evicted += 1
        blocks[block].received_evicted += received
        blocks[block].evicted_at = changes.times[at]
    while counters[TAIL] - counters[HEAD] >= max_losses:
        return_to = pairs[pair].key
        source = np.int64(pairs[pair].source)
        drop_oldest_loss(blocks, pairs, losses, clock)
        # Slots may have moved.
        pair = find_pair(pairs, (return_to, source))
    number = counters[TAIL]
    counters[TAIL] += 1
    slot = number & (len(losses) - 1)
    losses[slot].key = pairs[pair].key
    losses[slot].source = np.int64(pairs[pair].source)
    losses[slot].life = life
    losses[slot].cleared = 1 if cleared else 0
    losses[slot].received = received
    losses[slot].time = changes.times[at]
    losses[slot].stored = changes.stored[at]
    pairs[pair].media |= HAS_LOSS
    pairs[pair].position = np.uint32(number & 0xFFFFFFFF)
    counters[LOSSES] += 1
    if cleared:
        clock.clears_of_source[pairs[pair].source] = number + 1
