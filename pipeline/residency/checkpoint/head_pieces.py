"""Cuts large heads into pieces, of which a checkpoint writes only those that changed.

Where a piece ends is decided by the bytes there, so what comes or goes somewhere moves no other cut
(content-defined chunking).
"""

from __future__ import annotations

from hashlib import blake2b
from heapq import heappop, heappush

import numpy as np

WHOLE_BYTES = 16 << 10
"""Smaller heads are not worth it."""
_LEAST_BYTES = 256
MOST_BYTES = 64 << 10
_ONE_IN = 10
"""Bits: a piece ends at one place in 1,024."""
_WINDOW = 8
_MIXED = np.uint64(0x9E3779B97F4A7C15)
_SHIFT = np.uint64(64 - _ONE_IN)


class HeadPieces:
    """The pieces of one source's head that are in the log, by number from 1."""

    def __init__(self) -> None:
        self._numbers: dict[bytes, int] = {}
        """By digest, of the pieces of the last head."""
        self._free: list[int] = []
        """Other numbers below the largest one, as a heap."""
        self._largest = 0

    def changed(self, head: bytes) -> tuple[list[int], list[tuple[int, bytes]]]:
        """Return the numbers of a head's pieces in their order, and (number, piece) of those to write."""
        pieces = [(blake2b(piece, digest_size=16).digest(), piece) for piece in cut(head)]
        found = dict(pieces)
        for digest in self._numbers.keys() - found.keys():
            heappush(self._free, self._numbers.pop(digest))
        written: list[tuple[int, bytes]] = []
        for digest, piece in found.items():
            if digest not in self._numbers:
                self._numbers[digest] = number = self._free_number()
                written.append((number, piece))
        return [self._numbers[digest] for digest, _ in pieces], written

    def _free_number(self) -> int:
        if self._free:
            return heappop(self._free)
        self._largest += 1
        return self._largest


def cut(head: bytes) -> list[bytes]:
    """Return the pieces of a head, in order."""
    windows = np.ndarray((max(0, len(head) - _WINDOW + 1),), "<u8", head, 0, (1,))
    ends = np.flatnonzero((windows * _MIXED) >> _SHIFT == 0) + _WINDOW
    pieces: list[bytes] = []
    start = 0
    for end in [*ends.tolist(), len(head)]:
        while end - start > MOST_BYTES:
            pieces.append(head[start : start + MOST_BYTES])
            start += MOST_BYTES
        if end - start >= _LEAST_BYTES or end == len(head):
            pieces.append(head[start:end])
            start = end
    return [piece for piece in pieces if piece]
