"""The limits of one source, by the rules of docs/exactness.md#limits."""

from __future__ import annotations

from collections.abc import Iterable

from pipeline.verify.replica.two_sizes import Pools, TwoSizes
from schemas.events import Event, Removed, Stored
from schemas.hashes import HASH_BYTES
from schemas.settings import Worker


def no_room_for(event: Stored | Removed, pools: Pools, worker: Worker) -> bool:
    """Return whether an event would add one pool or block size too many."""
    pool = pools.get((event.medium, event.group_idx))
    if isinstance(pool, TwoSizes):
        return False
    if pool is not None and (isinstance(event, Removed) or not pool.sizes or event.block_size in pool.sizes):
        return False
    sizes = (2 if isinstance(one, TwoSizes) else max(1, len(one.sizes)) for one in pools.values())
    return sum(sizes) >= worker.max_pool_sizes


def no_room_for_stores(events: Iterable[Event], pools: Pools, worker: Worker) -> bool:
    """Return whether the stores of a batch are left out: they may bring too much, or too much is there."""
    coming = sum(len(event.hashes) for event in events if isinstance(event, Stored)) // HASH_BYTES
    one_by_one = sum(
        _hybrid(pool) if isinstance(pool, TwoSizes) else pool.other_sizes for pool in pools.values()
    )
    held = sum(_hybrid(pool) if isinstance(pool, TwoSizes) else len(pool.blocks) for pool in pools.values())
    return held + coming > worker.max_blocks or one_by_one > worker.max_itemised_blocks


def shed(pools: Pools, worker: Worker) -> bool:
    """Drop uncovered fine blocks down to 7/8 of the limit if hybrid pools exceed it; return whether any."""
    hybrid = [pool for pool in pools.values() if isinstance(pool, TwoSizes)]
    blocks, most = sum(map(_hybrid, hybrid)), worker.max_itemised_blocks
    if blocks <= most:
        return False
    left = blocks
    for pool in hybrid:
        if left > most * 7 // 8:
            left -= pool.shed(left - most * 7 // 8)
    return left < blocks


def _hybrid(pool: TwoSizes) -> int:
    return len(pool.coarse) + len(pool.fine)
