"""Memory between two pages that nobody may touch: a step beyond it ends the process at once."""

from __future__ import annotations

import ctypes
import mmap
import os

import numpy as np
from numpy.typing import NDArray

_PROT_NONE = 0


class GuardedMemory:
    """Bytes whose last one lies before a page without any right, and whose first one lies behind one."""

    def __init__(self, size: int) -> None:
        """`size` is rounded up to whole pages. Raises OSError."""
        page = mmap.PAGESIZE
        size = -(-size // page) * page
        self._map = mmap.mmap(-1, size + 2 * page)
        whole = np.frombuffer(self._map, np.uint8)
        protect = ctypes.CDLL(None, use_errno=True).mprotect
        protect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
        for guard in (whole.ctypes.data, whole.ctypes.data + page + size):
            if protect(guard, page, _PROT_NONE):
                raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
        self.bytes: NDArray[np.uint8] = whole[page : page + size]

    def put_last(self, content: bytes) -> int:
        """Put bytes before the guard at the end; return where they begin."""
        start = len(self.bytes) - len(content)
        self.bytes[start:] = np.frombuffer(content, np.uint8)
        return start

    def put_first(self, content: bytes) -> int:
        """Put bytes behind the guard at the beginning; return where they begin."""
        self.bytes[: len(content)] = np.frombuffer(content, np.uint8)
        return 0
