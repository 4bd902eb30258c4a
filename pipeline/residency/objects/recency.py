"""How many bytes were used since a use, in logarithmic time."""

from __future__ import annotations

from typing import Final

_LEAST: Final = 1024


class Recency:
    """Bytes by the number of a use, from 1 (a Fenwick tree)."""

    def __init__(self, uses: int = 0) -> None:
        """There is room for twice as many uses."""
        self.room = max(_LEAST, 2 * uses)
        self._sums = [0] * (self.room + 1)
        self._total = 0

    def add(self, use: int, size: int) -> None:
        """Add `size` bytes to a use; a negative number takes them back."""
        self._total += size
        sums, room = self._sums, self.room
        while use <= room:
            sums[use] += size
            use += use & -use

    def since(self, use: int) -> int:
        """Return the bytes of this use and of all after it."""
        before, sums = 0, self._sums
        use -= 1
        while use > 0:
            before += sums[use]
            use -= use & -use
        return self._total - before
