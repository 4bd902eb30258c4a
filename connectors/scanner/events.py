"""Write the events of a payload."""

from __future__ import annotations

import numpy as np

from connectors.compiled import inner
from connectors.scanner.fields import F_GROUP, F_HASHES, F_MEDIUM, F_TYPE, FIELDS, find_in_array, find_in_map
from connectors.scanner.hashes import put_hashes
from connectors.scanner.layout import MAX_RUN_BYTES, ROOM, Bytes, Ints
from connectors.scanner.places import MEDIUM_FIELDS, MEDIUM_PLACE, MEDIUM_ROW, group_at, medium_row, put_place
from connectors.scanner.reading import length_at
from connectors.scanner.stored import put_stored
from connectors.scanner.texts import (
    ALL_CLEARED,
    BLOCK_REMOVED,
    BLOCK_STORED,
    W_CLEARED,
    W_REMOVED,
    is_text,
    put,
)


@inner
def close_run(first: int, row: int, group: int, media: Bytes, out: Bytes, limit: int, o: int) -> int:
    """Complete the `Removed` whose hashes lie from `first` to `o`; return where it ends, or -1."""
    size = o - first
    if size > MAX_RUN_BYTES or limit - o < ROOM:
        return -1
    out[first - 3] = 0xC5
    out[first - 2] = size >> 8
    out[first - 1] = size & 0xFF
    return put_place(media, row, group, out, o)


@inner
def put_events(
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
        for i in range(FIELDS):
            fields[i] = -1
        entries, behind = length_at(data, p, end, 0x90, 0xDC)
        is_array = entries >= 0
        if is_array:
            p = find_in_array(data, behind, end, entries, fields, stack)
        else:
            entries, behind = length_at(data, p, end, 0x80, 0xDE)
            if entries < 0:
                return -1, o, 0
            p = find_in_map(data, behind, end, entries, fields, stack)
        if p < 0 or fields[F_TYPE] < 0:
            return -1, o, 0
        kind = fields[F_TYPE]
        if is_text(data, kind, end, BLOCK_REMOVED):
            row = medium_row(data, fields[F_MEDIUM], end, media)
            group = group_at(data, fields[F_GROUP], end)
            if row < 0 or group < 0 or fields[F_HASHES] < 0:
                return -1, o, 0
            place = np.int64(media[row * MEDIUM_ROW + MEDIUM_PLACE])
            if run < 0 or place != run_place or group != run_group:
                if run >= 0:
                    o = close_run(run, run_row, run_group, media, out, limit, o)
                if o < 0 or limit - o < ROOM:
                    return -1, o, 0
                out[o] = 0x82 + np.int64(media[row * MEDIUM_ROW + MEDIUM_FIELDS]) + (1 if group > 0 else 0)
                o = put(out, o + 1, W_REMOVED) + 3
                run, run_place, run_row, run_group = o, place, row, group
                written += 1
            o = put_hashes(data, fields[F_HASHES], end, out, limit, o)
            if o < 0:
                return -1, o, 0
            continue
        if run >= 0:
            o = close_run(run, run_row, run_group, media, out, limit, o)
            run = -1
        if o < 0 or limit - o < ROOM:
            return -1, o, 0
        if is_text(data, kind, end, BLOCK_STORED):
            o = put_stored(data, end, fields, is_array, sessions, media, out, limit, o)
            if o < 0:
                return -1, o, 0
        elif is_text(data, kind, end, ALL_CLEARED):
            out[o] = 0x81
            o = put(out, o + 1, W_CLEARED)
        else:
            return -1, o, 0
        written += 1
    if run >= 0:
        o = close_run(run, run_row, run_group, media, out, limit, o)
        if o < 0:
            return -1, o, 0
    return p, o, written
