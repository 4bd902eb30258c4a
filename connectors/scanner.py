"""Transcode well-formed payloads into encoded batches of our records, in one pass of compiled code.

What a payload means is defined by `connectors.careful`; this does the same for what engines really send, and
gives a payload up (leaves it to careful) on anything else, however small the doubt. Where it does not, the
bytes it writes decode to exactly what careful returns.

Payloads are hostile. Compiled code checks no bounds by itself, so every function here keeps to this: `p` is
where it reads, `end` is the end of the payload, a byte is read only after `end - p` said that it is there,
and a negative position means "give up". Values are skipped with a counter and a stack of bounded depth,
never by recursion. Before anything is written, the room for it up to `limit` was checked.

All compiled functions are in this file because the cached code of a function is thrown away only when its
own file changes.
"""

from __future__ import annotations

import numpy as np
from msgspec.msgpack import encode
from numpy.typing import NDArray

from connectors.columns import (
    DONE,
    END,
    EVENTS,
    GAVE_UP,
    MARK,
    PAYLOAD_BYTES,
    SEQ,
    START,
    STATUS,
    STRETCH_END,
)
from connectors.compiled import compiled, inner, pointer_to_bytes, pointer_to_numbers

Bytes = NDArray[np.uint8]
"""An array outside of `scan`, inside it a pointer, which costs less to pass."""
Ints = NDArray[np.int64]

MAX_DEPTH = 16
"""Engines nest four deep."""
MAX_EVENTS = 0xFFFF
MAX_RUN_BYTES = 0xFFFF
"""Packed hashes of one event: their length is written in two bytes."""
MAX_SCANNED_BYTES = 128 << 10
"""Larger payloads are left to careful, so that what is written cannot exceed a record's bound."""
MAX_MEDIUM_BYTES = 64
ROOM = 640
"""Bytes that an event (without hashes and texts) or the frame of a batch takes at most."""
_MAX_SEQUENCE = 1 << 48
_MARKED_BYTES = 64

# Columns of a row of the table of media: see `connectors.scanned`.
MEDIUM_PLACE, MEDIUM_FIELDS, MEDIUM_RAW, MEDIUM_ENCODED, MEDIUM_HEAD = 0, 1, 2, 3, 4
MEDIA = 16
"""Rows of that table."""
MEDIUM_ROW = MEDIUM_HEAD + MAX_MEDIUM_BYTES + 192

# Fields of an event, by their position in `fields`.
_HASHES, _PARENT, _SIZE, _LORA_ID, _MEDIUM, _LORA, _GROUP, _KIND, _WINDOW, _SESSION, _TYPE = range(11)
_FIELDS = 11
_STORED, _REMOVED, _CLEARED = 1, 2, 3


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


def _crc_table() -> NDArray[np.uint32]:
    table = np.arange(256, dtype=np.uint32)
    for _ in range(8):
        table = np.where(table & 1, (table >> 1) ^ np.uint32(0xEDB88320), table >> 1).astype(np.uint32)
    return table


_WIDTH = _widths()
_CRC = _crc_table()

_READ = (
    "BlockStored",
    "BlockRemoved",
    "AllBlocksCleared",
    "type",
    "block_hashes",
    "parent_block_hash",
    "block_size",
    "lora_id",
    "medium",
    "lora_name",
    "group_idx",
    "kv_cache_spec_kind",
    "kv_cache_spec_sliding_window",
    "session_id",
    "ts",
    "events",
)
_WRITTEN = (
    ("type", "stored", "hashes"),
    ("type", "removed", "hashes"),
    ("type", "cleared"),
    ("tokens",),
    ("parent",),
    ("spec_kind",),
    ("sliding_window",),
    ("lora",),
    ("session",),
)
_TEXT_BYTES = 32
_TEXTS = np.zeros((len(_READ) + len(_WRITTEN), _TEXT_BYTES), np.uint8)
"""A row for each text: how many bytes it has when encoded, then those."""
for _row, _encoded in zip(
    _TEXTS,
    [encode(text) for text in _READ] + [b"".join(map(encode, texts)) for texts in _WRITTEN],
    strict=True,
):
    _row[0] = len(_encoded)
    _row[1 : 1 + len(_encoded)] = np.frombuffer(_encoded, np.uint8)
(
    _BLOCK_STORED,
    _BLOCK_REMOVED,
    _ALL_CLEARED,
    _K_TYPE,
    _K_HASHES,
    _K_PARENT,
    _K_SIZE,
    _K_LORA_ID,
    _K_MEDIUM,
    _K_LORA,
    _K_GROUP,
    _K_KIND,
    _K_WINDOW,
    _K_SESSION,
    _K_TS,
    _K_EVENTS,
    _W_STORED,
    _W_REMOVED,
    _W_CLEARED,
    _W_TOKENS,
    _W_PARENT,
    _W_KIND,
    _W_WINDOW,
    _W_LORA,
    _W_SESSION,
) = range(len(_TEXTS))
_W_SIZE, _W_GROUP = _K_SIZE, _K_GROUP


@inner
def _skip(data: Bytes, p: int, end: int, stack: Ints) -> int:
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
def _integer(data: Bytes, p: int, end: int) -> int:
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
def _length(data: Bytes, p: int, end: int, fixed: int, short: int) -> tuple[int, int]:
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
def _text_at(data: Bytes, p: int, end: int) -> tuple[int, int]:
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
def _is(data: Bytes, p: int, end: int, text: int) -> bool:
    """Tell whether the value at `p` is this short text."""
    size = np.int64(_TEXTS[text, 0])
    if end - p < size:
        return False
    same = True
    for i in range(size):
        same = same and data[p + i] == _TEXTS[text, 1 + i]
    return same


@inner
def _put(out: Bytes, o: int, text: int) -> int:
    size = np.int64(_TEXTS[text, 0])
    for i in range(size):
        out[o + i] = _TEXTS[text, 1 + i]
    return int(o + size)


@inner
def _put_text(data: Bytes, start: int, size: int, out: Bytes, o: int) -> int:
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
def _put_integer(value: int, out: Bytes, o: int) -> int:
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


@inner
def _hash(data: Bytes, p: int, end: int, out: Bytes, o: int) -> int:
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
def _put_hashes(data: Bytes, p: int, end: int, out: Bytes, limit: int, o: int) -> int:
    """Write the hashes of the array at `p`; return where they end in `out`, or -1."""
    count, p = _length(data, p, end, 0x90, 0xDC)
    if count < 0 or limit - o < 8 * count + ROOM:
        return -1
    for _ in range(count):
        p = _hash(data, p, end, out, o)
        if p < 0:
            return -1
        o += 8
    return o


@inner
def _find_in_array(data: Bytes, p: int, end: int, count: int, fields: Ints, stack: Ints) -> int:
    """Set `fields` of an event in array form, whose elements begin at `p`; return where it ends, or -1."""
    if count < 1:
        return -1
    stored = _is(data, p, end, _BLOCK_STORED)
    least = 5 if stored else 2 if _is(data, p, end, _BLOCK_REMOVED) else 1
    if count < least:
        return -1
    for i in range(count):
        at = p
        p = _skip(data, p, end, stack)
        if p < 0:
            return -1
        if i == 0:
            fields[_TYPE] = at
        elif stored:
            if i == 1:
                fields[_HASHES] = at
            elif i == 2:
                fields[_PARENT] = at
            elif i == 4:
                fields[_SIZE] = at
            elif i == 5:
                fields[_LORA_ID] = at
            elif i == 6:
                fields[_MEDIUM] = at
            elif i == 7:
                fields[_LORA] = at
            elif i == 9:
                fields[_GROUP] = at
            elif i == 10:
                fields[_KIND] = at
            elif i == 11:
                fields[_WINDOW] = at
        elif i == 1:
            fields[_HASHES] = at
        elif i == 2:
            fields[_MEDIUM] = at
        elif i == 3:
            fields[_GROUP] = at
    return p


@inner
def _key(data: Bytes, p: int, end: int) -> int:
    """Return which field the map key at `p` names; -1 for another one."""
    size = np.int64(data[p])
    if size == 0xA4:
        return _TYPE if _is(data, p, end, _K_TYPE) else -1
    if size == 0xAC:
        return _HASHES if _is(data, p, end, _K_HASHES) else -1
    if size == 0xB1:
        return _PARENT if _is(data, p, end, _K_PARENT) else -1
    if size == 0xA6:
        return _MEDIUM if _is(data, p, end, _K_MEDIUM) else -1
    if size == 0xA7:
        return _LORA_ID if _is(data, p, end, _K_LORA_ID) else -1
    if size == 0xA9:
        if _is(data, p, end, _K_GROUP):
            return _GROUP
        return _LORA if _is(data, p, end, _K_LORA) else -1
    if size == 0xAA:
        if _is(data, p, end, _K_SIZE):
            return _SIZE
        return _SESSION if _is(data, p, end, _K_SESSION) else -1
    if size == 0xB2:
        return _KIND if _is(data, p, end, _K_KIND) else -1
    if size == 0xBC:
        return _WINDOW if _is(data, p, end, _K_WINDOW) else -1
    return -1


@inner
def _find_in_map(data: Bytes, p: int, end: int, count: int, fields: Ints, stack: Ints) -> int:
    """The same for an event in map form; names that occur twice or are no short ASCII text give up."""
    for _ in range(count):
        start, size = _text_at(data, p, end)
        if size < 0:
            return -1
        field = _key(data, p, end)
        if size < 32 and start != p + 1:  # a known name in a longer spelling would go unseen
            return -1
        p = start + size
        if field >= 0:
            if fields[field] >= 0:
                return -1
            fields[field] = p
        p = _skip(data, p, end, stack)
        if p < 0:
            return -1
    return p


@inner
def _medium_row(data: Bytes, p: int, end: int, media: Bytes) -> int:
    """Return the row of the medium at `p`, -1 for one that is not in the table."""
    if p < 0:
        return 0
    start, size = _text_at(data, p, end)
    if size == -2:
        return 0
    for row in range(MEDIA):
        if size == media[row * MEDIUM_ROW + MEDIUM_RAW]:
            same = True
            for i in range(size):
                if data[start + i] != media[row * MEDIUM_ROW + MEDIUM_HEAD + i]:
                    same = False
                    break
            if same:
                return row
    return -1


@inner
def _put_place(media: Bytes, row: int, group: int, out: Bytes, o: int) -> int:
    """Write medium and group where they are not the defaults."""
    for i in range(np.int64(media[row * MEDIUM_ROW + MEDIUM_ENCODED])):
        out[o + i] = media[row * MEDIUM_ROW + MEDIUM_HEAD + MAX_MEDIUM_BYTES + i]
    o += np.int64(media[row * MEDIUM_ROW + MEDIUM_ENCODED])
    if group > 0:
        o = _put(out, o, _W_GROUP)
        o = _put_integer(group, out, o)
    return o


@inner
def _group(data: Bytes, p: int, end: int) -> int:
    if p < 0:
        return 0
    group = _integer(data, p, end)
    if group == -2:
        return 0
    return group if group <= 0xFFFF else -1


@inner
def _put_stored(
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
    if limit - o < ROOM or fields[_HASHES] < 0 or fields[_SIZE] < 0:
        return -1
    map_head = o
    entries = 3
    o = _put(out, o + 1, _W_STORED)
    o += 3
    first = o
    o = _put_hashes(data, fields[_HASHES], end, out, limit, o)
    hashes_end = o
    if o < 0 or o - first > MAX_RUN_BYTES:
        return -1
    out[first - 3] = 0xC5
    out[first - 2] = (o - first) >> 8
    out[first - 1] = (o - first) & 0xFF
    block_size = _integer(data, fields[_SIZE], end)
    if block_size < 0 or block_size > 0xFFFFFFFF:
        return -1
    o = _put(out, o, _W_SIZE)
    o = _put_integer(block_size, out, o)
    tokens = block_size * (hashes_end - first >> 3)
    if tokens > 0:
        entries += 1
        o = _put(out, o, _W_TOKENS)
        o = _put_integer(tokens, out, o)
    p = fields[_PARENT]
    if p >= 0 and data[p] != 0xC0:
        entries += 1
        o = _put(out, o, _W_PARENT)
        out[o] = 0xC4
        out[o + 1] = 8
        if _hash(data, p, end, out, o + 2) < 0:
            return -1
        o += 10
    row = _medium_row(data, fields[_MEDIUM], end, media)
    group = _group(data, fields[_GROUP], end)
    if row < 0 or group < 0:
        return -1
    entries += np.int64(media[row * MEDIUM_ROW + MEDIUM_FIELDS]) + (1 if group > 0 else 0)
    o = _put_place(media, row, group, out, o)
    if fields[_KIND] >= 0:
        start, size = _text_at(data, fields[_KIND], end)
        if size == -1 or limit - o < size + ROOM:
            return -1
        if size >= 0:
            entries += 1
            o = _put(out, o, _W_KIND)
            o = _put_text(data, start, size, out, o)
    if fields[_WINDOW] >= 0:
        window = _integer(data, fields[_WINDOW], end)
        if window == -1:
            return -1
        if window >= 0:
            entries += 1
            o = _put(out, o, _W_WINDOW)
            o = _put_integer(window, out, o)
    named = False
    if fields[_LORA] >= 0:
        head = data[fields[_LORA]]
        metadata = is_array and (head & 0xF0 == 0x80 or head == 0xDE or head == 0xDF)  # SGLang's
        if not metadata:
            start, size = _text_at(data, fields[_LORA], end)
            if size == -1 or limit - o < size + ROOM:
                return -1
            if size >= 0:
                named = True
                entries += 1
                o = _put(out, o, _W_LORA)
                o = _put_text(data, start, size, out, o)
    if fields[_LORA_ID] >= 0 and data[fields[_LORA_ID]] != 0xC0:
        number = _integer(data, fields[_LORA_ID], end)
        if number < 0:
            start, size = _text_at(data, fields[_LORA_ID], end)
            if size < 0 or limit - o < size + ROOM:
                return -1
            if not named:
                entries += 1
                o = _put(out, o, _W_LORA)
                o = _put_text(data, start, size, out, o)
        elif not named:
            entries += 1
            o = _put(out, o, _W_LORA)
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
    if sessions and not is_array and fields[_SESSION] >= 0:
        start, size = _text_at(data, fields[_SESSION], end)
        if size == -1 or limit - o < size + ROOM:
            return -1
        if size >= 0:
            entries += 1
            o = _put(out, o, _W_SESSION)
            o = _put_text(data, start, size, out, o)
    out[map_head] = 0x80 + entries
    return o


@inner
def _close_run(first: int, row: int, group: int, media: Bytes, out: Bytes, limit: int, o: int) -> int:
    """Complete the `Removed` whose hashes lie from `first` to `o`; return where it ends, or -1."""
    size = o - first
    if size > MAX_RUN_BYTES or limit - o < ROOM:
        return -1
    out[first - 3] = 0xC5
    out[first - 2] = size >> 8
    out[first - 1] = size & 0xFF
    return _put_place(media, row, group, out, o)


@inner
def _put_events(
    data: Bytes,
    p: int,
    end: int,
    count: int,
    sessions: bool,
    media: Bytes,
    fields: Ints,
    stack: Ints,
    out: Bytes,
    limit: int,
    o: int,
) -> tuple[int, int, int]:
    """Write the events that begin at `p`, adjacent removals of one place merged.

    Returns (position behind them, where they end in `out`, how many were written); a negative position
    gives up.
    """
    written = 0
    run = -1  # where the hashes of an open run of removals begin
    run_place = run_row = run_group = 0
    for _ in range(count):
        for i in range(_FIELDS):
            fields[i] = -1
        entries, behind = _length(data, p, end, 0x90, 0xDC)
        is_array = entries >= 0
        if is_array:
            p = _find_in_array(data, behind, end, entries, fields, stack)
        else:
            entries, behind = _length(data, p, end, 0x80, 0xDE)
            if entries < 0:
                return -1, o, 0
            p = _find_in_map(data, behind, end, entries, fields, stack)
        if p < 0 or fields[_TYPE] < 0:
            return -1, o, 0
        kind = fields[_TYPE]
        if _is(data, kind, end, _BLOCK_REMOVED):
            row = _medium_row(data, fields[_MEDIUM], end, media)
            group = _group(data, fields[_GROUP], end)
            if row < 0 or group < 0 or fields[_HASHES] < 0:
                return -1, o, 0
            place = np.int64(media[row * MEDIUM_ROW + MEDIUM_PLACE])
            if run < 0 or place != run_place or group != run_group:
                if run >= 0:
                    o = _close_run(run, run_row, run_group, media, out, limit, o)
                if o < 0 or limit - o < ROOM:
                    return -1, o, 0
                out[o] = 0x82 + np.int64(media[row * MEDIUM_ROW + MEDIUM_FIELDS]) + (1 if group > 0 else 0)
                o = _put(out, o + 1, _W_REMOVED) + 3
                run, run_place, run_row, run_group = o, place, row, group
                written += 1
            o = _put_hashes(data, fields[_HASHES], end, out, limit, o)
            if o < 0:
                return -1, o, 0
            continue
        if run >= 0:
            o = _close_run(run, run_row, run_group, media, out, limit, o)
            run = -1
        if o < 0 or limit - o < ROOM:
            return -1, o, 0
        if _is(data, kind, end, _BLOCK_STORED):
            o = _put_stored(data, end, fields, is_array, sessions, media, out, limit, o)
            if o < 0:
                return -1, o, 0
        elif _is(data, kind, end, _ALL_CLEARED):
            out[o] = 0x81
            o = _put(out, o + 1, _W_CLEARED)
        else:
            return -1, o, 0
        written += 1
    if run >= 0:
        o = _close_run(run, run_row, run_group, media, out, limit, o)
        if o < 0:
            return -1, o, 0
    return p, o, written


@inner
def _envelope(data: Bytes, p: int, end: int, stack: Ints) -> tuple[int, int, int]:
    """Return where the timestamp and the events of a payload begin, and how many values follow the events.

    That number is -1 where what follows was skipped already, as a map's events may stand anywhere. Positions
    of -1 give up.
    """
    ts = events = rest = -1
    count, behind = _length(data, p, end, 0x90, 0xDC)
    if count >= 2:
        ts = behind
        events = _skip(data, ts, end, stack)
        rest = count - 2
    elif count < 0:
        count, p = _length(data, p, end, 0x80, 0xDE)
        for _ in range(count):
            start, size = _text_at(data, p, end)
            if size < 0 or start != p + 1:
                return -1, -1, -1
            value = start + size
            if _is(data, p, end, _K_TS):
                if ts >= 0:
                    return -1, -1, -1
                ts = value
            elif _is(data, p, end, _K_EVENTS):
                if events >= 0:
                    return -1, -1, -1
                events = value
            p = _skip(data, value, end, stack)
            if p < 0:
                return -1, -1, -1
    if (rest < 0 and p != end) or ts < 0 or events < 0:
        return -1, -1, -1
    # Eight bytes of a finite number.
    if data[ts] != 0xCB or end - ts < 9 or (data[ts + 1] & 0x7F == 0x7F and data[ts + 2] & 0xF0 == 0xF0):
        return -1, -1, -1
    return ts, events, rest


@inner
def _put_batch(
    data: Bytes,
    p: int,
    end: int,
    seq: int,
    received_at: Bytes,
    sessions: bool,
    media: Bytes,
    fields: Ints,
    stack: Ints,
    out: Bytes,
    limit: int,
    o: int,
) -> tuple[int, int]:
    """Write one batch; return (where it ends in `out`, engine events), or (-1, 0)."""
    if end - p > MAX_SCANNED_BYTES or limit - o < ROOM:
        return -1, 0
    ts, p, rest = _envelope(data, p, end, stack)
    if ts < 0:
        return -1, 0
    count, p = _length(data, p, end, 0x90, 0xDC)
    if count < 0 or count > MAX_EVENTS:
        return -1, 0
    out[o] = 0x96
    o = _put_integer(seq, out, o + 1)
    for i in range(9):
        out[o + i] = data[ts + i]
        out[o + 9 + i] = received_at[i]
    o += 18
    head = o
    p, o, written = _put_events(data, p, end, count, sessions, media, fields, stack, out, limit, o + 3)
    if p < 0 or limit - o < ROOM:
        return -1, 0
    for _ in range(rest):
        p = _skip(data, p, end, stack)
        if p < 0:
            return -1, 0
    if rest >= 0 and p != end:
        return -1, 0
    out[head] = 0xDC
    out[head + 1] = written >> 8
    out[head + 2] = written & 0xFF
    o = _put_integer(count, out, o)
    out[o] = 0xC2
    return o + 1, count


@inner
def _mark(data: Bytes, start: int, end: int) -> int:
    """Return `connectors.sequence.fingerprint` of a payload."""
    crc = np.uint32(~np.uint32(end - start))
    for i in range(start, min(end, start + _MARKED_BYTES)):
        crc = (crc >> np.uint32(8)) ^ _CRC[(crc ^ np.uint32(data[i])) & np.uint32(0xFF)]
    return int(np.uint32(~crc))


@compiled
def scan(
    data: Bytes,
    starts: Ints,
    ends: Ints,
    seqs: Ints,
    max_bytes: int,
    received_at: Bytes,
    sessions: bool,
    media: Bytes,
    out: Bytes,
    result: Ints,
) -> int:
    """Transcode payloads `data[starts[i]:ends[i]]` numbered `seqs` into `out`; return bytes written.

    `received_at` is an encoded float. A negative number in `seqs` marks a message that has no payload, and
    payloads above `max_bytes` are not looked at. Column i of `result` says what became of payload i;
    STRETCH_END is the index behind the last payload of an unbroken stretch of done ones with consecutive
    numbers that begins here, whose batches lie side by side in `out`.
    """
    field_array = np.empty(_FIELDS, np.int64)
    stack_array = np.empty(MAX_DEPTH, np.int64)
    fields = pointer_to_numbers(field_array.ctypes.data)
    stack = pointer_to_numbers(stack_array.ctypes.data)
    source = pointer_to_bytes(data.ctypes.data)
    target = pointer_to_bytes(out.ctypes.data)
    rows = pointer_to_bytes(media.ctypes.data)
    stamp = pointer_to_bytes(received_at.ctypes.data)
    limit = out.size
    o = 0
    count = seqs.size
    for i in range(count):
        start = starts[i]
        end = ends[i]
        result[STATUS, i] = GAVE_UP
        result[SEQ, i] = seqs[i]
        result[START, i] = o
        result[PAYLOAD_BYTES, i] = end - start
        result[MARK, i] = _mark(source, start, end)
        result[EVENTS, i] = 0
        if seqs[i] >= 0 and seqs[i] < _MAX_SEQUENCE and end - start <= max_bytes:
            behind, events = _put_batch(
                source, start, end, seqs[i], stamp, sessions, rows, fields, stack, target, limit, o
            )
            if behind >= 0:
                o = behind
                result[STATUS, i] = DONE
                result[EVENTS, i] = events
        result[END, i] = o
    for i in range(count - 1, -1, -1):
        result[STRETCH_END, i] = i + 1
        both = i + 1 < count and result[STATUS, i] == DONE and result[STATUS, i + 1] == DONE
        if both and seqs[i + 1] == seqs[i] + 1:
            result[STRETCH_END, i] = result[STRETCH_END, i + 1]
    # The arrays must outlive their pointers.
    field_array[0] = stack_array[0] = 0
    return o
