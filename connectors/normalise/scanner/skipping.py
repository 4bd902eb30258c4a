"""Skip a value of msgpack, whatever it is, never beyond the end."""

from __future__ import annotations

import numpy as np

from connectors.normalise.scanner.layout import MAX_DEPTH, Bytes, Ints
from connectors.process.compiled import inner


def _widths() -> Bytes:
    """Return the size of a value by its first byte; 0 where it depends on what follows."""
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
