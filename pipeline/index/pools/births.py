"""When blocks arrived that may yet turn out to be the finer of two granularities.

Blocks of a size that was never removed may be; those leave by age (docs/exactness.md#two-granularities).
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

from pipeline.reading.columns import Events, Hashes
from pipeline.residency.counting.block_entries import BlockColumns
from schemas.pool_checkpoints import PoolHead

Times = npt.NDArray[np.float64]
Counts = npt.NDArray[np.int64]


class Births:
    """Event times of the first copies of one pool's blocks, as long as they may matter."""

    def __init__(self) -> None:
        self._parts: dict[int, list[tuple[Hashes, Times, Counts]]] = {}
        """By block size, oldest first: hashes, times, and how many of the hashes each time is for."""

    def stored(self, head: PoolHead, events: Events) -> None:
        """Note the stores among the events of a pool."""
        young = _young(head)
        of_events = np.isin(events.rows["block_size"], young)
        if of_events.any():
            rows = events.rows
            counts = rows["hashes"]
            for size in young:
                chosen = rows["block_size"] == size
                if chosen.any():
                    hashes = events.hashes[np.repeat(chosen, counts)]
                    self._note(size, hashes, rows["time"][chosen], counts[chosen])

    def put(self, head: PoolHead, columns: BlockColumns) -> None:
        """Note the entries of a checkpoint."""
        young = _young(head)
        if young:
            sizes = np.array(head.block_sizes, np.int64).take(columns.size_codes)
            for size in young:
                chosen = (sizes == size) & (columns.copies > 0)
                times = columns.births[chosen]
                self._note(size, columns.hashes[chosen], times, np.ones(len(times), np.int64))

    def _note(self, size: int, hashes: Hashes, times: Times, counts: Counts) -> None:
        self._parts.setdefault(size, []).append((hashes, times, counts))

    def removed(self, sizes: Iterable[int]) -> None:
        """Drop the times of these sizes, which no longer matter because blocks of them were removed."""
        for size in sizes:
            self._parts.pop(size, None)

    def cleared(self) -> None:
        """Drop all times, because all blocks are gone."""
        self._parts.clear()

    def of(self, hashes: Hashes) -> Times:
        """Return when each block first arrived, 0 where that is not known."""
        came: dict[int, float] = {}
        for parts in self._parts.values():
            for blocks, times, counts in parts:
                for block, at in zip(blocks.tolist(), np.repeat(times, counts).tolist(), strict=True):
                    came.setdefault(block, at)
        return np.array([came.get(block, 0.0) for block in hashes.tolist()], np.float64)


def _young(head: PoolHead) -> list[int]:
    return [
        size for size, removed in zip(head.block_sizes, head.removed, strict=True) if size > 0 and not removed
    ]
