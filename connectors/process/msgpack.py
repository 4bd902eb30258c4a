"""Reads MessagePack values at a position, never beyond the end: for compiled functions."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from connectors.process.compiled import big_endian_at, double_at, inner, word_at

Bytes = NDArray[np.uint8]
"""Inside compiled functions a pointer, which costs less to pass than an array."""


@inner
def same_bytes(one: Bytes, p: int, other: Bytes, q: int, size: int) -> bool:
    """Return whether `size` bytes, at most 32, are the same in both; they must be there."""
    if size < 8:
        same = True
        for i in range(size):
            same = same and one[p + i] == other[q + i]
        return same
    # Words that overlap, so that no byte beyond is read.
    last = size - 8
    if word_at(one, p) != word_at(other, q) or word_at(one, p + last) != word_at(other, q + last):
        return False
    if size <= 16:
        return True
    last -= 8
    return bool(
        word_at(one, p + 8) == word_at(other, q + 8) and word_at(one, p + last) == word_at(other, q + last)
    )


@inner
def integer_at(data: Bytes, p: int, end: int) -> int:
    """Return the whole number at `p` from 0 to 2**63 - 1; -1 for anything else, -2 for nil."""
    if p >= end:
        return -1
    head = np.int64(data[p])
    if head < 0x80:
        return int(head)
    if head == 0xC0:
        return -2
    size = 0
    if head == 0xCC or head == 0xD0:
        size = 1
    elif head == 0xCD or head == 0xD1:
        size = 2
    elif head == 0xCE or head == 0xD2:
        size = 4
    elif head == 0xCF or head == 0xD3:
        size = 8
    else:
        return -1
    if end - p < 1 + size:
        return -1
    if head >= 0xCF and data[p + 1] >= 0x80:  # negative, or beyond what we read
        return -1
    value = 0
    for i in range(size):
        value = value << 8 | np.int64(data[p + 1 + i])
    return value


@inner
def behind_integer(data: Bytes, p: int) -> int:
    """Return the position behind the integer or nil at `p`, which `integer_at` must have accepted."""
    head = np.int64(data[p])
    if head >= 0xCC and head <= 0xCF:
        return int(p + 1 + (1 << (head - 0xCC)))
    if head >= 0xD0 and head <= 0xD3:
        return int(p + 1 + (1 << (head - 0xD0)))
    return p + 1


@inner
def length_at(data: Bytes, p: int, end: int, fixed: int, short: int) -> tuple[int, int]:
    """Return (entries, position behind the head) of an array (0x90, 0xDC) or map (0x80, 0xDE).

    (-1, p) where it is none.
    """
    if p >= end:
        return -1, p
    head = np.int64(data[p])
    if head & 0xF0 == fixed:
        return head & 0x0F, p + 1
    size = 0
    if head == short:
        size = 2
    elif head == short + 1:
        size = 4
    else:
        return -1, p
    if end - p < 1 + size:
        return -1, p
    count = 0
    for i in range(size):
        count = count << 8 | np.int64(data[p + 1 + i])
    if count > end - p:
        return -1, p
    return count, p + 1 + size


@inner
def text_at(data: Bytes, p: int, end: int) -> tuple[int, int]:
    """Return (start, bytes) of the ASCII text at `p`; -2 bytes for nil, -1 for anything else."""
    if p >= end:
        return p, -1
    head = np.int64(data[p])
    if head == 0xC0:
        return p, -2
    start = p + 1
    size = -1
    if head & 0xE0 == 0xA0:
        size = head & 0x1F
    elif head == 0xD9 and end - p >= 2:
        size = np.int64(data[p + 1])
        start = p + 2
    elif head == 0xDA and end - p >= 3:
        size = np.int64(data[p + 1]) << 8 | np.int64(data[p + 2])
        start = p + 3
    if size < 0 or end - start < size:
        return p, -1
    seen = np.uint8(0)
    for i in range(start, start + size):
        seen |= data[i]
    if seen >= 0x80:
        return p, -1
    return start, size


@inner
def is_some_text(head: int) -> bool:
    """Return whether a value with this first byte is a text, other than the shortest form of an empty one."""
    return 0xA0 < head < 0xC0 or 0xD9 <= head <= 0xDB


@inner
def binary_at(data: Bytes, p: int, end: int) -> tuple[int, int]:
    """Return (start, bytes) of the binary value at `p`; -2 bytes for nil, -1 for anything else."""
    if p >= end:
        return p, -1
    head = np.int64(data[p])
    if head == 0xC0:
        return p, -2
    if head < 0xC4 or head > 0xC6:
        return p, -1
    width = 1 << (head - 0xC4)
    if end - p < 1 + width:
        return p, -1
    size = 0
    for i in range(width):
        size = size << 8 | np.int64(data[p + 1 + i])
    start = p + 1 + width
    if end - start < size:
        return p, -1
    return start, size


@inner
def number_at(data: Bytes, p: int, end: int) -> float:
    """Return the float of eight bytes at `p`; NaN for anything else."""
    if end - p < 9 or data[p] != 0xCB:
        return float(np.nan)
    return float(double_at(data, p + 1))


@inner
def put_numbers(data: Bytes, p: int, count: int, into: NDArray[np.uint64], at: int) -> None:
    """Copy `count` big-endian integers of eight bytes, which must be there, into `into` from `at` on."""
    for i in range(count):
        into[at + i] = big_endian_at(data, p + 8 * i)
