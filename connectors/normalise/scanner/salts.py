"""Find the salt of a store (`connectors.normalise.salts`) and write its name."""

from __future__ import annotations

import numpy as np

from connectors.normalise.scanner.blake2b import Words, finished
from connectors.normalise.scanner.forms import F_KEYS, F_LORA, F_SALT, F_TYPE
from connectors.normalise.scanner.layout import ROOM, Bytes, Ints
from connectors.normalise.scanner.msgpack_keys import W_SALT, put
from connectors.normalise.scanner.skipping import skip
from connectors.process.compiled import inner
from connectors.process.msgpack import length_at, text_at

_NAME_BYTES = 8
_NIL = 0xC0


@inner
def _salt_at(data: Bytes, end: int, fields: Ints, stack: Ints) -> tuple[int, int]:
    """Return (start, bytes) of the salt of an event; -2 bytes or 0 where it has none, -1 gives up."""
    p = fields[F_SALT]
    if p >= 0 and data[p] != _NIL:
        return text_at(data, p, end)
    p = fields[F_KEYS]
    if p < 0 or fields[F_TYPE] < 0:
        return p, -2
    blocks, p = length_at(data, p, end, 0x90, 0xDC)
    if blocks < 1:
        return p, -2
    keys, p = length_at(data, p, end, 0x90, 0xDC)
    adapter = fields[F_LORA]
    first = 1 if adapter >= 0 and data[adapter] != _NIL else 0
    for i in range(keys):
        head = data[p]
        if i >= first and (head & 0xE0 == 0xA0 or (head >= 0xD9 and head <= 0xDB)):
            return text_at(data, p, end)
        p = skip(data, p, end, stack)
    return p, -2


@inner
def put_salt(
    data: Bytes, end: int, fields: Ints, names: Words, stack: Ints, out: Bytes, limit: int, o: int
) -> int:
    """Write what stands for the salt, nothing where there is none; return where it ends, or -1.

    The text is hashed where nothing is yet, behind the place of its name.
    """
    start, size = _salt_at(data, end, fields, stack)
    if size == -1 or limit - o < size + ROOM:
        return -1
    if size <= 0:
        return o
    o = put(out, o, W_SALT)
    out[o] = 0xA0 + 2 * _NAME_BYTES
    message = o + 1 + 2 * _NAME_BYTES
    for i in range(size):
        out[message + i] = data[start + i]
    digest = finished(names, out, message, size)
    for i in range(2 * _NAME_BYTES):
        digit = np.int64((digest >> np.uint64(8 * (i // 2) + 4 * (1 - i % 2))) & np.uint64(0xF))
        out[o + 1 + i] = digit + (0x30 if digit < 10 else 0x57)
    return message
