"""Bundles of several sources, side by side in memory, so that compiled code can run through all of them."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from connectors.frames.bundle import Bundle

_Numbers = NDArray[np.int64]


class Bundles:
    """What came of several sources: at least one message of each, all of three frames with their numbers."""

    __slots__ = ("begins", "data", "ends", "table")

    def __init__(self, data: NDArray[np.uint8], table: _Numbers, ends: _Numbers, begins: _Numbers) -> None:
        """Bundle k ends before message `ends[k]`, and its data begin at `begins[k]`.

        `table` has the tables of the bundles, one behind the other; positions count from where a bundle's
        data begin.
        """
        self.data = data
        self.table = table
        self.ends = ends
        self.begins = begins

    def __len__(self) -> int:
        return len(self.ends)

    @property
    def messages(self) -> int:
        """How many there are altogether."""
        count: int = self.table.shape[1]
        return count

    def bundle(self, number: int) -> Bundle:
        """Return one with memory of its own: one that waits long must not keep that of the others."""
        first = int(self.ends[number - 1]) if number else 0
        data_end = int(self.begins[number + 1]) if number + 1 < len(self) else self.data.size
        return Bundle(
            self.data[int(self.begins[number]) : data_end].copy(),
            self.table[:, first : int(self.ends[number])].copy(),
            {},
        )
