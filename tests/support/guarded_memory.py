"""Arrays that end where memory ends: whoever reads an item too far is killed by the machine."""

from __future__ import annotations

import ctypes
import mmap
from typing import Any

import numpy as np
import numpy.typing as npt

_PROT_NONE = 0
_mprotect = ctypes.CDLL(None, use_errno=True).mprotect
_mprotect.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)


def guarded(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return a copy of an array whose last byte is the last one before a page that nobody may touch."""
    size = array.nbytes
    pages = -(-max(size, 1) // mmap.PAGESIZE)
    memory = mmap.mmap(-1, (pages + 1) * mmap.PAGESIZE)
    start = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    if _mprotect(start + pages * mmap.PAGESIZE, mmap.PAGESIZE, _PROT_NONE):
        raise OSError(ctypes.get_errno(), "mprotect")
    whole = np.frombuffer(memory, np.uint8, pages * mmap.PAGESIZE)
    copy = whole[len(whole) - size :].view(array.dtype).reshape(array.shape)
    copy[...] = array
    return copy


def guarded_all(value: Any) -> Any:
    """Return a value, or a tuple of columns, with every array in it guarded."""
    if isinstance(value, np.ndarray):
        return guarded(value)
    if isinstance(value, tuple) and hasattr(value, "_make"):
        return type(value)._make(map(guarded_all, value))
    return value
