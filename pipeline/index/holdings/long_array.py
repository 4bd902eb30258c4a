"""Arrays that grow without being copied: the operating system remaps their pages."""

from __future__ import annotations

import contextlib
import mmap
from typing import Any, Final

import numpy as np
import numpy.typing as npt

_LARGE_PAGE: Final = 2 << 20
"""The system can move whole page tables if a length is a multiple of this."""


class LongArray:
    """An array, of zeros at first, outside of the interpreter's memory."""

    def __init__(self, length: int, kind: npt.DTypeLike) -> None:
        self._kind = np.dtype(kind)
        self._memory = self._new(length)
        self.array: npt.NDArray[Any] = self._of_memory(length)

    def lengthen(self, length: int) -> None:
        """Append zeros up to a length. If anything else holds the array, it is copied."""
        length_before = len(self.array)
        self.array = np.empty(0, self._kind)  # memory that an array refers to cannot move
        try:
            self._memory.resize(self._bytes(length))
        except (BufferError, SystemError):  # something refers to it, or the system cannot
            before = self._of_memory(length_before)
            self._memory = self._new(length)
            self._of_memory(length_before)[:] = before
        self.array = self._of_memory(length)

    def _bytes(self, length: int) -> int:
        needed = length * self._kind.itemsize
        return needed if needed < _LARGE_PAGE else -(-needed // _LARGE_PAGE) * _LARGE_PAGE

    def _new(self, length: int) -> mmap.mmap:
        memory = mmap.mmap(-1, self._bytes(length), flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        with contextlib.suppress(AttributeError, OSError):  # a system that has no large pages
            memory.madvise(mmap.MADV_HUGEPAGE)
        return memory

    def _of_memory(self, length: int) -> npt.NDArray[Any]:
        return np.frombuffer(self._memory, self._kind, length)
