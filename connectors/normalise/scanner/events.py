"""Write the events of a payload."""

from __future__ import annotations

import numpy as np

from connectors.normalise.scanner.blake2b import Words
from connectors.normalise.scanner.forms import (
    F_GROUP,
    F_HASHES,
    F_LOCALITY,
    F_MEDIUM,
    F_RARE,
    FIELDS,
    KIND,
    REMOVED,
    SKIPPED,
    STORED,
    find_in_array,
    find_in_map,
    form_at,
    form_of_map,
    has_required,
)
from connectors.normalise.scanner.hashes import put_hashes
from connectors.normalise.scanner.layout import MAX_RUN_BYTES, ROOM, Bytes, Ints
from connectors.normalise.scanner.location import (
    MEDIUM_FIELDS,
    MEDIUM_LOCATION,
    MEDIUM_ROW,
    group_at,
    is_local,
    medium_row,
    put_location,
)
from connectors.normalise.scanner.msgpack_keys import W_CLEARED, W_REMOVED, put
from connectors.normalise.scanner.stored import put_stored
from connectors.process.compiled import inner
from connectors.process.msgpack import is_some_text, length_at


@inner
def close_run(first: int, row: int, group: int, media: Bytes, out: Bytes, limit: int, o: int) -> int:
    """Complete the `Removed` whose hashes lie from `first` to `o`; return where it ends, or -1."""
    size = o - first
    if size > MAX_RUN_BYTES or limit - o < ROOM:
        return -1
    out[first - 3] = 0xC5
    out[first - 2] = size >> 8
    out[first - 1] = size & 0xFF
    return put_location(media, row, group, out, o)


@inner
def put_events(
    data: Bytes,
    p: int,
    end: int,
    count: int,
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
) -> tuple[int, int, int, int]:
    """Write the events that begin at `p`, with adjacent removals of one medium and group merged.

    Returns (where they end, where they end in `out`, how many were written, how many were skipped); the first
    is negative where it gives up.
    """
    written = skipped = 0
    run = -1  # where the hashes of an open run of removals begin
    run_location = run_row = run_group = 0
    for _ in range(count):
        for i in range(FIELDS):
            fields[i] = -1
        entries, behind = length_at(data, p, end, 0x90, 0xDC)
        if entries >= 1:
            form = form_at(data, behind, end, forms)
            if form < 0:
                return -1, o, 0, 0
            p = find_in_array(data, behind, end, entries, forms, form, fields, stack)
        else:
            entries, behind = length_at(data, p, end, 0x80, 0xDE)
            form = form_of_map(data, behind, end, entries, forms, stack)
            if form < 0:
                return -1, o, 0, 0
            p = find_in_map(data, behind, end, entries, forms, form, fields, stack)
        if p < 0 or not has_required(forms, form, fields) or fields[F_RARE] >= 0:
            return -1, o, 0, 0
        if fields[F_LOCALITY] >= 0 and not is_local(data, fields[F_LOCALITY], end):
            return -1, o, 0, 0
        kind = forms[form + KIND]
        if kind == REMOVED:
            row = medium_row(data, fields[F_MEDIUM], end, media)
            group = group_at(data, fields[F_GROUP], end)
            if row < 0 or group < 0:
                return -1, o, 0, 0
            location = np.int64(media[row * MEDIUM_ROW + MEDIUM_LOCATION])
            if run < 0 or location != run_location or group != run_group:
                if run >= 0:
                    o = close_run(run, run_row, run_group, media, out, limit, o)
                if o < 0 or limit - o < ROOM:
                    return -1, o, 0, 0
                out[o] = 0x82 + np.int64(media[row * MEDIUM_ROW + MEDIUM_FIELDS]) + (1 if group > 0 else 0)
                o = put(out, o + 1, W_REMOVED) + 3
                run, run_location, run_row, run_group = o, location, row, group
                written += 1
            o = put_hashes(data, fields[F_HASHES], end, out, limit, o)
            if o < 0:
                return -1, o, 0, 0
            continue
        if kind == SKIPPED:
            skipped += 1
            continue
        if run >= 0:
            o = close_run(run, run_row, run_group, media, out, limit, o)
            run = -1
        if o < 0 or limit - o < ROOM:
            return -1, o, 0, 0
        if kind == STORED:
            o = put_stored(data, end, fields, links, content, named, names, media, stack, out, limit, o)
            if o < 0:
                return -1, o, 0, 0
        else:
            if fields[F_MEDIUM] >= 0 and is_some_text(data[fields[F_MEDIUM]]):
                return -1, o, 0, 0  # it clears one medium only, which is rare
            out[o] = 0x81
            o = put(out, o + 1, W_CLEARED)
        written += 1
    if run >= 0:
        o = close_run(run, run_row, run_group, media, out, limit, o)
        if o < 0:
            return -1, o, 0, 0
    return p, o, written, skipped
