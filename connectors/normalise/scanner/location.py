"""Medium and group of an event."""

from __future__ import annotations

from typing import Final

import numpy as np

from connectors.normalise.scanner.layout import Bytes
from connectors.normalise.scanner.msgpack_keys import K_LOCAL, W_GROUP, is_text, put
from connectors.normalise.scanner.writing import put_integer
from connectors.process.compiled import inner
from connectors.process.msgpack import integer_at, text_at

MAX_MEDIUM_BYTES: Final = 64
MAX_ENCODED_BYTES: Final = 192

# Columns of the table of media, which `connectors.normalise.scan_tables` makes: one row for each spelling,
# the first for none at all.
MEDIUM_LOCATION: Final = 0
"""The first row that is written the same in records."""
MEDIUM_STORE_ONLY: Final = 1
MEDIUM_FIELDS: Final = 2
"""How many fields it takes in a record."""
MEDIUM_RAW: Final = 3
"""Bytes of the spelling; NO_MEDIUM ends the table."""
MEDIUM_ENCODED: Final = 4
"""Bytes of the encoded fields."""
MEDIUM_GPU: Final = 5
"""1: the medium is the GPU."""
MEDIUM_TEXT: Final = 6
"""The spelling, then the encoded fields."""
MEDIUM_ROW: Final = MEDIUM_TEXT + MAX_MEDIUM_BYTES + MAX_ENCODED_BYTES
NO_MEDIUM: Final = 0xFF


@inner
def medium_row(data: Bytes, p: int, end: int, media: Bytes) -> int:
    """Return the row of the medium at `p`, -1 for one that is not in the table."""
    if p < 0:
        return 0
    start, size = text_at(data, p, end)
    if size == -2:
        return 0
    row = 0
    while media[row * MEDIUM_ROW + MEDIUM_RAW] != NO_MEDIUM:
        if size == np.int64(media[row * MEDIUM_ROW + MEDIUM_RAW]):
            same = True
            for i in range(size):
                if data[start + i] != media[row * MEDIUM_ROW + MEDIUM_TEXT + i]:
                    same = False
                    break
            if same:
                return row
        row += 1
    return -1


@inner
def put_location(media: Bytes, row: int, group: int, out: Bytes, o: int) -> int:
    """Write medium and group where they are not the defaults."""
    for i in range(np.int64(media[row * MEDIUM_ROW + MEDIUM_ENCODED])):
        out[o + i] = media[row * MEDIUM_ROW + MEDIUM_TEXT + MAX_MEDIUM_BYTES + i]
    o += np.int64(media[row * MEDIUM_ROW + MEDIUM_ENCODED])
    if group > 0:
        o = put(out, o, W_GROUP)
        o = put_integer(group, out, o)
    return o


@inner
def is_local(data: Bytes, p: int, end: int) -> bool:
    """Tell whether the locality at `p` is nil or LOCAL."""
    return (p < end and data[p] == 0xC0) or is_text(data, p, end, K_LOCAL)


@inner
def group_at(data: Bytes, p: int, end: int) -> int:
    if p < 0:
        return 0
    group = integer_at(data, p, end)
    if group == -2:
        return 0
    return group if group <= 0xFFFF else -1
