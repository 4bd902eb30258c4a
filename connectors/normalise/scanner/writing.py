"""Write values of msgpack."""

from __future__ import annotations

from connectors.normalise.scanner.layout import Bytes
from connectors.process.compiled import inner


@inner
def put_text(data: Bytes, start: int, size: int, out: Bytes, o: int) -> int:
    if size < 32:
        out[o] = 0xA0 + size
        o += 1
    else:
        out[o] = 0xDA
        out[o + 1] = size >> 8
        out[o + 2] = size & 0xFF
        o += 3
    for i in range(size):
        out[o + i] = data[start + i]
    return int(o + size)


@inner
def put_integer(value: int, out: Bytes, o: int) -> int:
    if value < 0x80:
        out[o] = value
        return o + 1
    size = 8
    head = 0xCF
    if value < 0x100:
        size, head = 1, 0xCC
    elif value < 0x10000:
        size, head = 2, 0xCD
    elif value < 0x100000000:
        size, head = 4, 0xCE
    out[o] = head
    for i in range(size):
        out[o + 1 + i] = (value >> (8 * (size - 1 - i))) & 0xFF
    return o + 1 + size
