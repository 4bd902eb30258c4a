"""Medium and group of an event."""

from __future__ import annotations

from typing import Final

import numpy as np

from connectors.compiled import inner
from connectors.scanner.layout import Bytes
from connectors.scanner.reading import integer_at, text_at
from connectors.scanner.texts import W_GROUP, put
from connectors.scanner.writing import put_integer

MAX_MEDIUM_BYTES: Final = 64

# Columns of a row of the table of media, which `connectors.scanning` makes.
MEDIUM_PLACE, MEDIUM_FIELDS, MEDIUM_RAW, MEDIUM_ENCODED, MEDIUM_HEAD = 0, 1, 2, 3, 4
MEDIA: Final = 16
"""Rows of that table."""
MEDIUM_ROW: Final = MEDIUM_HEAD + MAX_MEDIUM_BYTES + 192


@inner
def medium_row(data: Bytes, p: int, end: int, media: Bytes) -> int:
    """Return the row of the medium at `p`, -1 for one that is not in the table."""
    if p < 0:
        return 0
    start, size = text_at(data, p, end)
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
def put_place(media: Bytes, row: int, group: int, out: Bytes, o: int) -> int:
    """Write medium and group where they are not the defaults."""
    for i in range(np.int64(media[row * MEDIUM_ROW + MEDIUM_ENCODED])):
        out[o + i] = media[row * MEDIUM_ROW + MEDIUM_HEAD + MAX_MEDIUM_BYTES + i]
    o += np.int64(media[row * MEDIUM_ROW + MEDIUM_ENCODED])
    if group > 0:
        o = put(out, o, W_GROUP)
        o = put_integer(group, out, o)
    return o


@inner
def group_at(data: Bytes, p: int, end: int) -> int:
    if p < 0:
        return 0
    group = integer_at(data, p, end)
    if group == -2:
        return 0
    return group if group <= 0xFFFF else -1
