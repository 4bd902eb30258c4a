"""Write a `Stored` record event."""

from __future__ import annotations

import numpy as np

from connectors.compiled import inner
from connectors.scanner.fields import (
    F_GROUP,
    F_HASHES,
    F_KIND,
    F_LORA,
    F_LORA_ID,
    F_MEDIUM,
    F_PARENT,
    F_SESSION,
    F_SIZE,
    F_WINDOW,
)
from connectors.scanner.hashes import put_hash, put_hashes
from connectors.scanner.layout import MAX_RUN_BYTES, ROOM, Bytes, Ints
from connectors.scanner.places import MEDIUM_FIELDS, MEDIUM_ROW, group_at, medium_row, put_place
from connectors.scanner.reading import integer_at, text_at
from connectors.scanner.texts import (
    W_KIND,
    W_LORA,
    W_PARENT,
    W_SESSION,
    W_SIZE,
    W_STORED,
    W_TOKENS,
    W_WINDOW,
    put,
)
from connectors.scanner.writing import put_integer, put_text


@inner
def put_stored(
    data: Bytes,
    end: int,
    fields: Ints,
    is_array: bool,
    sessions: bool,
    media: Bytes,
    out: Bytes,
    limit: int,
    o: int,
) -> int:
    """Write a `Stored`; return where it ends in `out`, or -1."""
    if limit - o < ROOM or fields[F_HASHES] < 0 or fields[F_SIZE] < 0:
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
    o = put_place(media, row, group, out, o)
    if fields[F_KIND] >= 0:
        start, size = text_at(data, fields[F_KIND], end)
        if size == -1 or limit - o < size + ROOM:
            return -1
        if size >= 0:
            entries += 1
            o = put(out, o, W_KIND)
            o = put_text(data, start, size, out, o)
    if fields[F_WINDOW] >= 0:
        window = integer_at(data, fields[F_WINDOW], end)
        if window == -1:
            return -1
        if window >= 0:
            entries += 1
            o = put(out, o, W_WINDOW)
            o = put_integer(window, out, o)
    named = False
    if fields[F_LORA] >= 0:
        head = data[fields[F_LORA]]
        metadata = is_array and (head & 0xF0 == 0x80 or head == 0xDE or head == 0xDF)  # SGLang's
        if not metadata:
            start, size = text_at(data, fields[F_LORA], end)
            if size == -1 or limit - o < size + ROOM:
                return -1
            if size >= 0:
                named = True
                entries += 1
                o = put(out, o, W_LORA)
                o = put_text(data, start, size, out, o)
    if fields[F_LORA_ID] >= 0 and data[fields[F_LORA_ID]] != 0xC0:
        number = integer_at(data, fields[F_LORA_ID], end)
        if number < 0:
            start, size = text_at(data, fields[F_LORA_ID], end)
            if size < 0 or limit - o < size + ROOM:
                return -1
            if not named:
                entries += 1
                o = put(out, o, W_LORA)
                o = put_text(data, start, size, out, o)
        elif not named:
            entries += 1
            o = put(out, o, W_LORA)
            digits = 1
            rest = number // 10
            while rest > 0:
                digits += 1
                rest //= 10
            out[o] = 0xA0 + digits
            for i in range(digits):
                out[o + digits - i] = 0x30 + number % 10
                number //= 10
            o += 1 + digits
    if sessions and not is_array and fields[F_SESSION] >= 0:
        start, size = text_at(data, fields[F_SESSION], end)
        if size == -1 or limit - o < size + ROOM:
            return -1
        if size >= 0:
            entries += 1
            o = put(out, o, W_SESSION)
            o = put_text(data, start, size, out, o)
    out[map_head] = 0x80 + entries
    return o
