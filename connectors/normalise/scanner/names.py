"""Write the names of a store's session id and of its salt (`connectors.normalise.salts`)."""

from __future__ import annotations

import numpy as np

from connectors.normalise.scanner.blake2b import Words, finished
from connectors.normalise.scanner.forms import F_KEYS, F_LORA, F_SALT, F_SESSION, F_TYPE
from connectors.normalise.scanner.layout import ROOM, Bytes, Ints
from connectors.normalise.scanner.msgpack_keys import W_SALT, W_SESSION, put
from connectors.normalise.scanner.skipping import skip
from connectors.normalise.wire import MAX_TEXT
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
def _put_name(
    data: Bytes, start: int, size: int, key: int, names: Words, out: Bytes, limit: int, o: int
) -> int:
    """Write the name of a text under a key, nothing where `size` is negative; return where it ends, or -1.

    The text is copied after the place of its name to be hashed, in the unused part of `out`.
    """
    if size < 0:
        return o
    if size == 0 or limit - o < size + ROOM:
        return -1
    o = put(out, o, key)
    out[o] = 0xA0 + 2 * _NAME_BYTES
    message = o + 1 + 2 * _NAME_BYTES
    for i in range(size):
        out[message + i] = data[start + i]
    digest = finished(names, out, message, size)
    for i in range(2 * _NAME_BYTES):
        digit = np.int64((digest >> np.uint64(8 * (i // 2) + 4 * (1 - i % 2))) & np.uint64(0xF))
        out[o + 1 + i] = digit + (0x30 if digit < 10 else 0x57)
    return message


@inner
def put_session(data: Bytes, end: int, fields: Ints, names: Words, out: Bytes, limit: int, o: int) -> int:
    """Write the name of the session id, nothing where there is none; return where it ends, or -1."""
    p = fields[F_SESSION]
    if p < 0:
        return o
    start, size = text_at(data, p, end)
    if size == -1 or size > MAX_TEXT:
        return -1
    return _put_name(data, start, size, W_SESSION, names, out, limit, o)


@inner
def put_salt(
    data: Bytes, end: int, fields: Ints, names: Words, stack: Ints, out: Bytes, limit: int, o: int
) -> int:
    """Write the name of the salt, nothing where there is none; return where it ends, or -1."""
    start, size = _salt_at(data, end, fields, stack)
    if size == -1:
        return -1
    return _put_name(data, start, size if size > 0 else -2, W_SALT, names, out, limit, o)
