"""The rows of a hash table that grows in steps, from its last slot to its first, searchable all the while.

A row's home is proportional to the table's length, so a longer table has its rows in the same order. Rows
that were moved lie in proportion to the new length, the others to the old one, all in one array: a search
begins at one place, as in a table that does not grow.
"""

from __future__ import annotations

import secrets
from typing import Final

import numpy as np

from pipeline.index.holdings.long_array import LongArray
from pipeline.index.holdings.rows import ROW, Rows, Spread, cut_rows, put_rows

STEP: Final = 1 << 14
"""Slots moved in one go: tens of microseconds."""


class GrowingRows:
    """The rows, and the `Spread` by which blocks find theirs."""

    def __init__(self, slots: int) -> None:
        self._memory = LongArray(slots, ROW)
        self.spread = _spread(np.uint64(secrets.randbits(62) << 1 | 1), slots)

    @property
    def array(self) -> Rows:
        """Return the rows; growing may move them in memory."""
        return self._memory.array

    @property
    def growing(self) -> bool:
        """Return whether rows are left to move."""
        return int(self.spread.slots) != len(self.array)

    def grow(self, slots: int) -> None:
        """Begin to grow to `slots` slots; `go_on` then moves the rows.

        First moves the rows left from growing before. If anything else holds the array, it is copied.
        """
        while self.growing:
            self.go_on(STEP)
        before = len(self.array)
        low = max(0, before - STEP)
        # The last rows may have wrapped around to the first slots.
        taken = cut_rows(self.array, low, before)
        self._memory.lengthen(slots)
        self._put(low, taken)

    def go_on(self, slots: int) -> None:
        """Move the rows of the next `slots` slots, if any are left to move."""
        while slots > 0 and self.growing:
            high = int(self.spread.grown)
            low = max(0, high - min(slots, STEP))
            self._put(low, cut_rows(self.array, low, high))
            slots -= STEP

    def _put(self, low: int, taken: Rows) -> None:
        if low:
            self.spread = self.spread._replace(grown=np.uint64(low))
        else:
            self.spread = _spread(self.spread.factor, len(self.array))
        put_rows(taken, self.array, self.spread)


def _spread(factor: np.uint64, slots: int) -> Spread:
    return Spread(factor, np.uint64(slots), np.uint64(slots))
