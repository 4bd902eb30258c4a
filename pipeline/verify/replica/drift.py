"""How many blocks more are counted on the GPU than the engine has."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from pipeline.verify.replica.copies import Held

UNUSED = 1
"""Blocks never used, unless the engine says otherwise."""


@dataclass
class EngineSays:
    """What the engine of the present life said of itself; 0 before it did."""

    capacity_blocks: int = 0
    block_size: int = 0
    unused: int = UNUSED

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
