"""What is resident of one source."""

from __future__ import annotations

from typing import NamedTuple

from schemas.pool_checkpoints import PoolHead


class Occupancy(NamedTuple):
    """What is resident at one granularity of one medium and group."""

    medium: str
    group_idx: int
    block_size: int
    entries: int
    blocks: int
    tokens: int
    covered_blocks: int
    store_only: bool
    """The figures are upper bounds: what leaves is not announced."""
    at_least: bool
    """The figures are lower bounds: what was announced again may be copies."""


def counted_occupancy(head: PoolHead) -> list[Occupancy]:
    """Return what is resident of a pool of one granularity, per block size.

    Every size ever seen is listed, even if nothing of it is resident any more.
    """
    mark, repeats = head.store_only, head.repeats
    return [
        Occupancy(head.medium, head.group_idx, size, entries, blocks, blocks * size, 0, mark, repeats)
        for size, entries, blocks in zip(head.block_sizes, head.entries, head.blocks, strict=True)
    ]
