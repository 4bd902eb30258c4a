"""When blocks arrived that may yet turn out to be the finer of two granularities.

Blocks of a size that was never removed may be; those leave by age (docs/exactness.md#two-granularities).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from pipeline.reading.columns import Events, Hashes
from pipeline.residency.counting.block_entries import BlockColumns
from schemas.events import is_kept_once
from schemas.pool_checkpoints import PoolHead

_FEW = 1024
_PART = 32
"""What a part takes besides its hashes, in hashes."""

Times = npt.NDArray[np.float64]
Counts = npt.NDArray[np.int64]


@dataclass
class _OfSize:
    """The blocks of one size."""

    parts: list[tuple[Hashes, Times, Counts]] = field(default_factory=list)
    """Oldest first: hashes, times, and how many of the hashes each time is for."""
    taken: int = 0
    """Memory that the parts take, in hashes."""
    most: int = _FEW
    """Where `taken` is more, each block keeps its first time only."""

    def note(self, hashes: Hashes, times: Times, counts: Counts) -> None:
        self.parts.append((hashes, times, counts))
        self.taken += _PART + len(hashes)
        if self.taken > self.most:
            blocks, first = np.unique(np.concatenate([part[0] for part in self.parts]), return_index=True)
            came = np.concatenate([np.repeat(at, of) for _, at, of in self.parts])[first]
            self.parts = [(blocks, came, np.ones(len(blocks), np.int64))]
            self.taken = len(blocks)
            self.most = max(_FEW, 2 * self.taken)


class Births:
    """Event times of the first copies of one pool's blocks, as long as they may matter."""

    def __init__(self) -> None:
        self._sizes: dict[int, _OfSize] = {}
        """By block size."""

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
        self._sizes.setdefault(size, _OfSize()).note(hashes, times, counts)

    def removed(self, sizes: Iterable[int]) -> None:
        """Drop the times of these sizes, which no longer matter because blocks of them were removed."""
        for size in sizes:
            self._sizes.pop(size, None)

    def cleared(self) -> None:
        """Drop all times, because all blocks are gone."""
        self._sizes.clear()

    def of(self, hashes: Hashes) -> Times:
        """Return when each block first arrived, 0 where that is not known."""
        came: dict[int, float] = {}
        for size in self._sizes.values():
            for blocks, times, counts in size.parts:
                for block, at in zip(blocks.tolist(), np.repeat(times, counts).tolist(), strict=True):
                    came.setdefault(block, at)
        return np.array([came.get(block, 0.0) for block in hashes.tolist()], np.float64)


def _young(head: PoolHead) -> list[int]:
    """Return the block sizes of which nothing was removed; none where a pool never has two granularities."""
    if head.store_only or is_kept_once(head.medium):
        return []
    return [
        size for size, removed in zip(head.block_sizes, head.removed, strict=True) if size > 0 and not removed
    ]
