"""Write a `Stored` record event."""

from __future__ import annotations

import numpy as np

from connectors.normalise.scanner.blake2b import Words
from connectors.normalise.scanner.forms import (
    F_GROUP,
    F_HASHES,
    F_KIND,
    F_LORA,
    F_LORA_ID,
    F_MEDIUM,
    F_PARENT,
    F_SIZE,
    F_TOKENS,
    F_TYPE,
    F_WINDOW,
)
from connectors.normalise.scanner.hashes import put_hash, put_hashes
from connectors.normalise.scanner.layout import MAX_RUN_BYTES, ROOM, SALTS, SESSIONS, Bytes, Ints
from connectors.normalise.scanner.links import put_links, tells_links
from connectors.normalise.scanner.location import (
    MEDIUM_FIELDS,
    MEDIUM_GPU,
    MEDIUM_ROW,
    MEDIUM_STORE_ONLY,
    group_at,
    medium_row,
    put_location,
)
from connectors.normalise.scanner.msgpack_keys import (
    KEYS,
    W_KIND,
    W_LINKS,
    W_LORA,
    W_PARENT,
    W_SIZE,
    W_STORE_ONLY,
    W_STORED,
    W_TOKENS,
    W_WINDOW,
    put,
)
from connectors.normalise.scanner.names import put_salt, put_session
from connectors.normalise.scanner.writing import put_integer, put_text
from connectors.normalise.wire import MAX_TEXT
from connectors.process.compiled import inner
from connectors.process.msgpack import integer_at, length_at, text_at


@inner
def _put_named(data: Bytes, p: int, end: int, name: int, out: Bytes, limit: int, o: int) -> int:
    """Write the text at `p` under its name, nothing where there is none or nil; -1 gives up."""
    if p < 0:
        return o
    start, size = text_at(data, p, end)
    if size == -1 or size > MAX_TEXT or limit - o < size + ROOM:
        return -1
    if size < 0:
        return o
    return put_text(data, start, size, out, put(out, o, name))


@inner
def _put_digits(value: int, out: Bytes, o: int) -> int:
    digits = 1
    rest = value // 10
    while rest > 0:
        digits += 1
        rest //= 10
    out[o] = 0xA0 + digits
    for i in range(digits):
        out[o + digits - i] = 0x30 + value % 10
        value //= 10
    return o + 1 + digits


@inner
def _put_lora(data: Bytes, name: int, number: int, end: int, out: Bytes, limit: int, o: int) -> int:
    """Write the adapter's name, else its number as text, nothing where the event has neither; -1 gives up."""
    named = _put_named(data, name, end, W_LORA, out, limit, o)
    if named < 0 or number < 0 or data[number] == 0xC0:
        return named
    value = integer_at(data, number, end)
    if value < 0:
        start, size = text_at(data, number, end)
        if size < 0 or size > MAX_TEXT or limit - o < size + ROOM:
            return -1
        return named if named > o else put_text(data, start, size, out, put(out, o, W_LORA))
    return named if named > o else _put_digits(value, out, put(out, o, W_LORA))


@inner
def put_stored(
    data: Bytes,
    end: int,
    fields: Ints,
    links: bool,
    content: Words,
    named: int,
    names: Words,
    media: Bytes,
    stack: Ints,
    out: Bytes,
    limit: int,
    o: int,
) -> int:
    """Write a `Stored`; return where it ends in `out`, or -1.

    `content` is for `links`, `names` for what is `named`.
    """
    if limit - o < ROOM:
        return -1
    map_head = o
    entries = 3
    o = put(out, o + 1, W_STORED)
    o += 3
    first = o
    o = put_hashes(data, fields[F_HASHES], end, out, limit, o)
    hashes_end = o
    if o < 0 or o - first > MAX_RUN_BYTES:
        return -1
    out[first - 3] = 0xC5
    out[first - 2] = (o - first) >> 8
    out[first - 1] = (o - first) & 0xFF
    block_size = integer_at(data, fields[F_SIZE], end)
    if block_size < 0 or block_size > 0xFFFFFFFF:
        return -1
    o = put(out, o, W_SIZE)
    o = put_integer(block_size, out, o)
    tokens = block_size * (hashes_end - first >> 3)
    # An array that ends with the size.
    if fields[F_TYPE] < 0 and fields[F_LORA_ID] < 0 and fields[F_TOKENS] >= 0:
        ids, _ = length_at(data, fields[F_TOKENS], end, 0x90, 0xDC)
        if tokens - block_size < ids < tokens:
            return -1  # its last page is not full
    if tokens > 0:
        entries += 1
        o = put(out, o, W_TOKENS)
        o = put_integer(tokens, out, o)
    p = fields[F_PARENT]
    if p >= 0 and data[p] != 0xC0:
        entries += 1
        o = put(out, o, W_PARENT)
        out[o] = 0xC4
        out[o + 1] = 8
        if put_hash(data, p, end, out, o + 2) < 0:
            return -1
        o += 10
    row = medium_row(data, fields[F_MEDIUM], end, media)
    group = group_at(data, fields[F_GROUP], end)
    if row < 0 or group < 0:
        return -1
    entries += np.int64(media[row * MEDIUM_ROW + MEDIUM_FIELDS]) + (1 if group > 0 else 0)
    o = put_location(media, row, group, out, o)
    before = o
    o = _put_named(data, fields[F_KIND], end, W_KIND, out, limit, o)
    if o < 0:
        return -1
    entries += 1 if o > before else 0
    if fields[F_WINDOW] >= 0:
        window = integer_at(data, fields[F_WINDOW], end)
        if window == -1:
            return -1
        if window >= 0:
            entries += 1
            o = put(out, o, W_WINDOW)
            o = put_integer(window, out, o)
    before = o
    o = _put_lora(data, fields[F_LORA], fields[F_LORA_ID], end, out, limit, o)
    if o < 0:
        return -1
    entries += 1 if o > before else 0
    lora, lora_end = before + KEYS[W_LORA, 0] + 1, o
    if o > before and out[lora - 1] == 0xDA:
        lora += 2
    if media[row * MEDIUM_ROW + MEDIUM_STORE_ONLY]:
        entries += 1
        o = put(out, o, W_STORE_ONLY)
        out[o] = 0xC3
        o += 1
    blocks = hashes_end - first >> 3
    if links and media[row * MEDIUM_ROW + MEDIUM_GPU] and tells_links(data, end, fields, blocks, block_size):
        entries += 1
        o = put(out, o, W_LINKS)
        out[o] = 0xC5
        out[o + 1] = out[first - 2]
        out[o + 2] = out[first - 1]
        lora_bytes = max(lora_end - lora, 0)
        o = put_links(data, end, fields, blocks, lora, lora_bytes, content, stack, out, limit, o + 3)
        if o < 0:
            return -1
    if named & SESSIONS:
        before = o
        o = put_session(data, end, fields, names, out, limit, o)
        if o < 0:
            return -1
        entries += 1 if o > before else 0
    if named & SALTS:
        before = o
        o = put_salt(data, end, fields, names, stack, out, limit, o)
        if o < 0:
            return -1
        entries += 1 if o > before else 0
    out[map_head] = 0x80 + entries
    return o
