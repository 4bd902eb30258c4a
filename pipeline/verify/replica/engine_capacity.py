"""What the engine reports about its own cache, and by how many blocks the count on the GPU exceeds it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from pipeline.verify.replica.copies import Held
from schemas.events import EngineCounters

UNUSED = 1
"""Blocks that the engine never uses, unless it says otherwise."""


@dataclass
class EngineCapacity:
    """What the engine has reported in the present session; 0 before it did."""

    capacity_blocks: int = 0
    block_size: int = 0
    unused: int = UNUSED

    def anything_new(self, said: EngineCounters) -> bool:
        """Return whether a report says anything that is not known of this session."""
        after = replace(self)
        after.heard(said)
        return after != self

    def heard(self, said: EngineCounters) -> None:
        """Record a report."""
        if said.capacity_blocks is not None:
            self.capacity_blocks = max(self.capacity_blocks, said.capacity_blocks)
        if said.block_size is not None:
            self.block_size = said.block_size
        if said.unused_blocks is not None:
            self.unused = said.unused_blocks

    def too_many(self, on_gpu: Iterable[tuple[int, Held]]) -> int:
        """Return drift_blocks for what is held on the GPU, as (group, held)."""
        if not self.capacity_blocks or not self.block_size:
            return 0
        largest: dict[int, Held] = {}
        for group, held in on_gpu:
            if group not in largest or held.block_size > largest[group].block_size:
                largest[group] = held
        counted = [held.entries for held in largest.values() if held.block_size >= self.block_size]
        return max(0, sum(counted) - (self.capacity_blocks - self.unused))


def gpu_room(said: EngineCounters, on_gpu: Sequence[tuple[int, Held]]) -> int:
    """Return how many blocks the GPU has room for in the size that events announce; 0: not known.

    `on_gpu`: what is held there, as (group, held). If the engine's pages are smaller than these blocks, their
    size may be in tokens of one rank (there is room for as many blocks as pages) or of all. It is of one if
    more blocks are held than fit otherwise, and of all if otherwise requests would use far more than is held.
    """
    largest = max((held.block_size for _, held in on_gpu), default=0)
    pages, page = said.capacity_blocks or 0, said.block_size or 0
    if said.unused_blocks != 0 or page == 0 or largest <= page:
        return pages
    if largest % page != 0 or any(group != on_gpu[0][0] for group, _ in on_gpu):
        return 0
    resident = sum(held.entries for _, held in on_gpu if held.block_size == largest)
    if resident > pages * page // largest:
        return pages
    too_many = said.kv_cache_usage is not None and said.kv_cache_usage * pages > resident + pages / 4
    return pages * page // largest if too_many else 0
