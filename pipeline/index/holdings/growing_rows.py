"""The rows of a table that grows in steps, from its last slot to its first, while blocks are found as ever.

Homes are in proportion to the length of the table, so a longer one has its rows in the same order. What was
moved lies in proportion to the new length, what was not to the old one, in one array: a question looks at one
place, as in a table that does not grow.
"""

from __future__ import annotations

import secrets
from typing import Final

import numpy as np

from pipeline.index.holdings.long_array import LongArray
from pipeline.index.holdings.rows import ROW, Rows, Spread, put_rows, take_rows

STEP: Final = 1 << 14
"""Slots moved in one go: some ten microseconds."""


class GrowingRows:
    """Rows, and where blocks have theirs."""

    def __init__(self, slots: int) -> None:
        self._memory = LongArray(slots, ROW)
        self.spread = _spread(np.uint64(secrets.randbits(62) << 1 | 1), slots)

    @property
    def array(self) -> Rows:
        """Return the rows; they lie elsewhere once they grew."""
        return self._memory.array

    @property
    def growing(self) -> bool:
        """Return whether rows are left to move."""
        return int(self.spread.slots) != len(self.array)

    def grow(self, slots: int) -> None:
        """Begin to have so many slots; `go_on` moves the rows.

        Moves all that are left of the last time. Where anybody else holds the array, it is copied.
        """
        while self.growing:
            self.go_on(STEP)
        before = len(self.array)
        low = max(0, before - STEP)
        # The last rows may have gone on from the first slot.
        taken = take_rows(self.array, low, before)
        self._memory.lengthen(slots)
        self._put(low, taken)

    def go_on(self, slots: int) -> None:
        """Move the rows of so many slots, if any are left."""
        while slots > 0 and self.growing:
            high = int(self.spread.grown)
            low = max(0, high - min(slots, STEP))
            self._put(low, take_rows(self.array, low, high))
            slots -= STEP

    def _put(self, low: int, taken: Rows) -> None:
        if low:
            self.spread = self.spread._replace(grown=np.uint64(low))
        else:
            self.spread = _spread(self.spread.factor, len(self.array))
        put_rows(taken, self.array, self.spread)


def _spread(factor: np.uint64, slots: int) -> Spread:
    return Spread(factor, np.uint64(slots), np.uint64(slots))
