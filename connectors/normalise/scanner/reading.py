"""Read values of msgpack at a position, never beyond the end."""

from __future__ import annotations

import numpy as np

from connectors.normalise.scanner.layout import MAX_DEPTH, Bytes, Ints
from connectors.process.compiled import inner, word_at


def _widths() -> Bytes:
    """Return the bytes each first byte of a value stands for; 0 where what follows says so."""
    width = np.ones(256, np.uint8)
    width[0x81:0x90] = width[0x91:0xA0] = 0
    width[0xA0:0xC0] = np.arange(1, 33)
    width[[0xC1, 0xC4, 0xC5, 0xC6, 0xC7, 0xC8, 0xC9, 0xD9, 0xDA, 0xDB, 0xDC, 0xDD, 0xDE, 0xDF]] = 0
    for head, size in zip(range(0xCA, 0xD4), (5, 9, 2, 3, 5, 9, 2, 3, 5, 9), strict=True):
        width[head] = size
    width[0xD4:0xD9] = (3, 4, 6, 10, 18)
    return width


_WIDTH = _widths()


@inner
def same_bytes(one: Bytes, p: int, other: Bytes, q: int, size: int) -> bool:
    """Tell whether `size` bytes, at most 32, are the same in both; they must be there."""
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
def skip(data: Bytes, p: int, end: int, stack: Ints) -> int:
    """Return where the value at `p` ends, or -1."""
    depth = 0
    left = 1
    head = np.uint8(0)
    while True:
        while left > 0:
            if p >= end:
                return -1
            head = data[p]
            width = _WIDTH[head]
            if width == 0:
                break
            p += np.int64(width)
            left -= 1
        if left == 0:
            if depth == 0:
                return p if p <= end else -1
            depth -= 1
            left = stack[depth]
            continue
        left -= 1
        children = 0
        if head < 0x90:
            children = 2 * np.int64(head & 0x0F)
            p += 1
        elif head < 0xA0:
            children = np.int64(head & 0x0F)
            p += 1
        elif head == 0xC1:
            return -1
        else:
            size_bytes = 0
            if head == 0xC4 or head == 0xC7 or head == 0xD9:
                size_bytes = 1
            elif head == 0xC5 or head == 0xC8 or head == 0xDA or head == 0xDC or head == 0xDE:
                size_bytes = 2
            else:
                size_bytes = 4
            if end - p < 1 + size_bytes:
                return -1
            size = 0
            for i in range(size_bytes):
                size = size << 8 | np.int64(data[p + 1 + i])
            p += 1 + size_bytes
            if head >= 0xDE:
                children = 2 * size
            elif head >= 0xDC:
                children = size
            else:
                if head >= 0xC7 and head <= 0xC9:
                    size += 1  # the type of an extension
                if end - p < size:
                    return -1
                p += size
        if children > 0:
            if children > end - p or depth >= MAX_DEPTH:
                return -1
            stack[depth] = left
            depth += 1
            left = children


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
