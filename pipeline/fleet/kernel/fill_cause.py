"""The cause of a fill, as compiled code."""

from __future__ import annotations

from typing import Final

import numpy as np

from connectors.process.compiled import compiled, inlined
from pipeline.fleet.causes import (
    CLEARED_BEFORE,
    COLD,
    EVICTED_AT_RECEIVERS,
    EVICTED_ELSEWHERE,
    EVICTED_HERE,
    GENERATED_HERE,
    NEEDED_BUCKETS,
    PEER,
    PEER_AND_EVICTED,
    PEER_AT_RECEIVERS,
    PROMOTED,
    REANNOUNCED,
    UNKNOWN,
)
from pipeline.fleet.kernel.columns import Changes, Pieces
from pipeline.fleet.kernel.counts import HEAD, Clock
from pipeline.fleet.kernel.tables import MEDIA, Blocks, Losses, Pairs
from pipeline.residency.histogram import bucket_of
from schemas.residency import GENERATED, RETURNED


@compiled
def _needed_bucket(tokens: int) -> int:
    """Return the least k with tokens <= 2**k."""
    bucket = 0
    while bucket < NEEDED_BUCKETS - 1 and (np.int64(1) << bucket) < tokens:
        bucket += 1
    return bucket


NO_BUCKET: Final = -1


@inlined
def cause_of(
    blocks: Blocks,
    pairs: Pairs,
    losses: Losses,
    clock: Clock,
    pair: int,
    block: int,
    changes: Changes,
    at: int,
    pieces: Pieces,
    piece: int,
) -> tuple[int, int, int]:
    """Return why a block that is not on the source's GPU was filled, and the buckets of regret and of extra
    cache needed, or NO_BUCKET."""
    if changes.kinds[at] == RETURNED:
        return REANNOUNCED, NO_BUCKET, NO_BUCKET
    if pair >= 0 and pairs[pair].media & MEDIA:
        return PROMOTED, NO_BUCKET, NO_BUCKET
    if changes.kinds[at] == GENERATED:
        return GENERATED_HERE, NO_BUCKET, NO_BUCKET
    others, evicted = False, False
    if block >= 0:
        others, evicted = blocks[block].holders > 0, blocks[block].evicted > 0
        if not pieces.receives[piece]:
            # What sources that receive KV hold or evicted is of no use to a source that does not.
            others = blocks[block].holders > blocks[block].received_holders
            evicted = blocks[block].evicted > blocks[block].received_evicted
    if pair >= 0:
        # A pair without a medium exists because of its loss.
        head = clock.counters[HEAD]
        number = head + ((np.int64(pairs[pair].position) - head) & 0xFFFFFFFF)
        slot = number & (len(losses) - 1)
        if losses[slot].cleared:
            return CLEARED_BEFORE, NO_BUCKET, NO_BUCKET
        bucket = NO_BUCKET
        # After a restart or clear in between, a larger cache would have lost it as well.
        kept = (
            losses[slot].life == pieces.lives[piece] and number >= clock.clears_of_source[pairs[pair].source]
        )
        if kept and losses[slot].stored >= 0 and changes.stored[at] >= 0:
            needed = max(changes.stored[at] - losses[slot].stored, 0)
            bucket = _needed_bucket(needed)
        regret = bucket_of(changes.times[at] - losses[slot].time)
        return (PEER_AND_EVICTED if others else EVICTED_HERE), regret, bucket
    if others:
        return PEER, NO_BUCKET, NO_BUCKET
    if block >= 0:
        if evicted:
            regret = bucket_of(changes.times[at] - blocks[block].evicted_at)
            return EVICTED_ELSEWHERE, regret, NO_BUCKET
        if blocks[block].cleared > 0:
            return CLEARED_BEFORE, NO_BUCKET, NO_BUCKET
        if blocks[block].holders > 0:
            return PEER_AT_RECEIVERS, NO_BUCKET, NO_BUCKET
        if blocks[block].evicted > 0:
            regret = bucket_of(changes.times[at] - blocks[block].evicted_at)
            return EVICTED_AT_RECEIVERS, regret, NO_BUCKET
    if (
        pieces.alone[piece] != 0
        or pieces.trusts[piece] != 0
        or changes.times[at] < pieces.unsure_until[piece]
    ):
        return UNKNOWN, NO_BUCKET, NO_BUCKET
    return COLD, NO_BUCKET, NO_BUCKET
