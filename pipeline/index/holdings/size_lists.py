"""Lists of block sizes, by size code, one after another in an array; pools with equal lists share one."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np


class SizeLists:
    """Lists of sizes that pools use: a whole fleet needs few."""

    def __init__(self) -> None:
        self.array = np.zeros(64, np.int64)
        self._used = 0
        """How much of the array was ever used."""
        self._begins: dict[tuple[int, ...], int] = {}
        self._users: dict[int, int] = {}
        """How many pools use the list that begins there."""
        self._free: dict[int, list[int]] = {}
        """By length: where unused lists begin."""

    def acquire(self, sizes: Sequence[int]) -> int:
        """Count one more user of a list, and return where it begins."""
        if not sizes:
            return 0
        key = tuple(sizes)
        begin = self._begins.get(key)
        if begin is None:
            begin = self._begins[key] = self._room(len(key))
            self.array[begin : begin + len(key)] = key
            self._users[begin] = 0
        self._users[begin] += 1
        return begin

    def release(self, begin: int, length: int) -> None:
        """Count one user less of a list; the last one frees it."""
        if not length:
            return
        self._users[begin] -= 1
        if not self._users[begin]:
            del self._users[begin], self._begins[tuple(self.of(begin, length))]
            self._free.setdefault(length, []).append(begin)

    def of(self, begin: int, length: int) -> list[int]:
        """Return a list."""
        sizes: list[int] = self.array[begin : begin + length].tolist()
        return sizes

    def _room(self, length: int) -> int:
        free = self._free.get(length)
        if free:
            return free.pop()
        begin, self._used = self._used, self._used + length
        while self._used > len(self.array):
            self.array = np.concatenate((self.array, np.zeros_like(self.array)))
        return begin
