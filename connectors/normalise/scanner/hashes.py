"""Block hashes: eight bytes each, whatever the engine's type is, as the reference decoder reads them."""

from __future__ import annotations

import numpy as np

from connectors.normalise.scanner.layout import ROOM, Bytes
from connectors.process.compiled import inner
from connectors.process.msgpack import length_at


@inner
def put_hash(data: Bytes, p: int, end: int, out: Bytes, o: int) -> int:
    """Write the eight bytes of the hash at `p`; return where it ends, or -1."""
    if p >= end:
        return -1
    head = np.int64(data[p])
    if head == 0xCF or head == 0xD3:
        if end - p < 9:
            return -1
        for i in range(8):
            out[o + i] = data[p + 1 + i]
        return p + 9
    if head == 0xC4:
        if end - p < 2:
            return -1
        size = np.int64(data[p + 1])
        if size < 8 or size % 2 == 1 or end - p - 2 < size:
            return -1
        last = p + 2 + size - 8
        for i in range(8):
            out[o + i] = data[last + i]
        return int(p + 2 + size)
    size = 0
    fill = 0
    if head == 0xCC or head == 0xD0:
        size = 1
    elif head == 0xCD or head == 0xD1:
        size = 2
    elif head == 0xCE or head == 0xD2:
        size = 4
    elif head < 0x80 or head >= 0xE0:
        for i in range(7):
            out[o + i] = 0xFF if head >= 0xE0 else 0
        out[o + 7] = head
        return p + 1
    else:
        return -1
    if end - p < 1 + size:
        return -1
    if head >= 0xD0 and data[p + 1] >= 0x80:
        fill = 0xFF
    for i in range(8 - size):
        out[o + i] = fill
    for i in range(size):
        out[o + 8 - size + i] = data[p + 1 + i]
    return p + 1 + size


@inner
def put_hashes(data: Bytes, p: int, end: int, out: Bytes, limit: int, o: int) -> int:
    """Write the hashes of the array at `p`; return where they end in `out`, or -1."""
    count, p = length_at(data, p, end, 0x90, 0xDC)
    if count < 0 or limit - o < 8 * count + ROOM:
        return -1
    for _ in range(count):
        p = put_hash(data, p, end, out, o)
        if p < 0:
            return -1
        o += 8
    return o
