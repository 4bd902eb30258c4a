"""Write a batch: the envelope of a payload and its events."""

from __future__ import annotations

from connectors.normalise.columns import MAX_RANK, NO_RANK
from connectors.normalise.scanner.blake2b import Words
from connectors.normalise.scanner.events import put_events
from connectors.normalise.scanner.layout import MAX_EVENTS, ROOM, Bytes, Ints
from connectors.normalise.scanner.msgpack_keys import K_EVENTS, K_TS, is_text
from connectors.normalise.scanner.skipping import skip
from connectors.normalise.scanner.writing import put_integer
from connectors.process.compiled import inner
from connectors.process.msgpack import integer_at, length_at, text_at


@inner
def _envelope(data: Bytes, p: int, end: int, stack: Ints) -> tuple[int, int, int]:
    """Return where the timestamp and the events of a payload begin, and how many values follow the events.

    That number is -1 for a map, all of which was skipped already, as its events may be anywhere. Positions of
    -1 give up.
    """
    ts = events = rest = -1
    count, behind = length_at(data, p, end, 0x90, 0xDC)
    if count >= 2:
        ts = behind
        events = skip(data, ts, end, stack)
        rest = count - 2
    elif count < 0:
        count, p = length_at(data, p, end, 0x80, 0xDE)
        for _ in range(count):
            start, size = text_at(data, p, end)
            if size < 0 or start != p + 1:
                return -1, -1, -1
            value = start + size
            if is_text(data, p, end, K_TS):
                if ts >= 0:
                    return -1, -1, -1
                ts = value
            elif is_text(data, p, end, K_EVENTS):
                if events >= 0:
                    return -1, -1, -1
                events = value
            p = skip(data, value, end, stack)
            if p < 0:
                return -1, -1, -1
    if (rest < 0 and p != end) or ts < 0 or events < 0:
        return -1, -1, -1
    # The timestamp is an eight-byte float, and finite.
    if data[ts] != 0xCB or end - ts < 9 or (data[ts + 1] & 0x7F == 0x7F and data[ts + 2] & 0xF0 == 0xF0):
        return -1, -1, -1
    return ts, events, rest


@inner
def put_batch(
    data: Bytes,
    p: int,
    end: int,
    seq: int,
    received_at: int,
    links: bool,
    content: Words,
    named: int,
    names: Words,
    forms: Bytes,
    media: Bytes,
    fields: Ints,
    stack: Ints,
    out: Bytes,
    limit: int,
    o: int,
) -> tuple[int, int, int, int, int]:
    """Write one batch; return (where it ends in `out`, events, skipped ones, rank, where its time begins).

    The first is -1 where it is given up. `received_at` is the bits of a float.
    """
    if limit - o < ROOM:
        return -1, 0, 0, 0, 0
    ts, p, rest = _envelope(data, p, end, stack)
    if ts < 0:
        return -1, 0, 0, 0, 0
    count, p = length_at(data, p, end, 0x90, 0xDC)
    if count < 0 or count > MAX_EVENTS:
        return -1, 0, 0, 0, 0
    out[o] = 0x96
    o = put_integer(seq, out, o + 1)
    for i in range(9):
        out[o + i] = data[ts + i]
    out[o + 9] = 0xCB
    for i in range(8):
        out[o + 10 + i] = (received_at >> (56 - 8 * i)) & 0xFF
    o += 18
    head = o
    p, o, written, skipped = put_events(
        data,
        p,
        end,
        count,
        links,
        content,
        named,
        names,
        forms,
        media,
        fields,
        stack,
        out,
        limit,
        o + 3,
    )
    if p < 0 or limit - o < ROOM:
        return -1, 0, 0, 0, 0
    rank = NO_RANK
    for i in range(rest):
        if i == 0:
            rank = integer_at(data, p, end)
            if not 0 <= rank <= MAX_RANK:
                rank = NO_RANK
        p = skip(data, p, end, stack)
        if p < 0:
            return -1, 0, 0, 0, 0
    if rest >= 0 and p != end:
        return -1, 0, 0, 0, 0
    out[head] = 0xDC
    out[head + 1] = written >> 8
    out[head + 2] = written & 0xFF
    o = put_integer(count, out, o)
    out[o] = 0xC2
    return o + 1, count, skipped, rank, ts
