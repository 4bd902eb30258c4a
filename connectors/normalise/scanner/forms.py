"""Find the type of an event and where its fields are, in array form or in map form.

The types and the places of their fields are given as bytes: one row for each type, which
`connectors.normalise.scan_tables` makes from the engines' descriptions.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from connectors.normalise.scanner.layout import Bytes, Ints
from connectors.normalise.scanner.msgpack_keys import K_TYPE, is_text
from connectors.normalise.scanner.skipping import skip
from connectors.process.compiled import inner
from connectors.process.msgpack import same_bytes, text_at

# Indices of `fields`, which holds where each value of an event begins; -1 where it has none.
(
    F_HASHES,
    F_PARENT,
    F_SIZE,
    F_LORA_ID,
    F_MEDIUM,
    F_LORA,
    F_GROUP,
    F_KIND,
    F_WINDOW,
    F_SESSION,
    F_RARE,
    F_TOKENS,
    F_KEYS,
    F_MEDIA_KEYS,
    F_SALT,
    F_LOCALITY,
    F_TYPE,
    F_OTHER,
) = range(18)
FIELDS: Final = 18
FOREIGN: Final = 0x80
"""Added to a field: it is F_OTHER if its value is a map."""

NO_MORE, STORED, REMOVED, CLEARED, SKIPPED = range(5)
"""Kinds. A row of NO_MORE ends the table."""
MAX_POSITIONS: Final = 32
"""Elements of an array that may be fields, its type included."""
MAX_KEYS: Final = 20
"""Keys of a map that are fields, its type included."""
MAX_TEXT: Final = 31
"""Characters of a type or key."""
MAX_REQUIRED: Final = 8

# Columns of a row. A text is encoded: a byte that says how long it is, then its characters.
KIND: Final = 0
LEAST: Final = 1
"""Elements that an array has at least."""
REQUIRED: Final = 2
"""How many fields are required, then which."""
TAG: Final = REQUIRED + 1 + MAX_REQUIRED
"""The type."""
POSITIONS: Final = TAG + 1 + MAX_TEXT
"""The field at each position of an array."""
BY_LENGTH: Final = POSITIONS + MAX_POSITIONS
"""By length: the first key of that length, counted from 1; 0: there is none."""
KEYS: Final = BY_LENGTH + MAX_TEXT + 1
KEY_FIELD, KEY_NEXT, KEY_TEXT = 0, 1, 2
"""Columns of a key: its field, the next key of the same length, the text."""
KEY_ROW: Final = KEY_TEXT + 1 + MAX_TEXT
FORM_ROW: Final = KEYS + MAX_KEYS * KEY_ROW


@inner
def form_at(data: Bytes, p: int, end: int, forms: Bytes) -> int:
    """Return where the row of the type named at `p` begins, -1 for one that is not in the table."""
    if p >= end:
        return -1
    head = data[p]
    row = 0
    while forms[row + KIND] != NO_MORE:
        if head == forms[row + TAG]:
            size = np.int64(head) - 0xA0 + 1
            if end - p >= size and same_bytes(data, p, forms, row + TAG, size):
                return row
        row += FORM_ROW
    return -1


@inner
def form_of_map(data: Bytes, p: int, end: int, count: int, forms: Bytes, stack: Ints) -> int:
    """Return the same for an event in map form, whose first key is at `p`: mostly `type`, but not always."""
    for _ in range(count):
        if is_text(data, p, end, K_TYPE):
            return form_at(data, p + 5, end, forms)
        start, size = text_at(data, p, end)
        if size < 0:
            return -1
        p = skip(data, start + size, end, stack)
        if p < 0:
            return -1
    return -1


@inner
def find_in_array(
    data: Bytes, p: int, end: int, count: int, forms: Bytes, row: int, fields: Ints, stack: Ints
) -> int:
    """Set `fields` of an event of `count` elements whose type is at `p`; return where it ends, or -1."""
    if count < np.int64(forms[row + LEAST]):
        return -1
    p += np.int64(data[p]) - 0xA0 + 1
    for i in range(1, count):
        at = p
        p = skip(data, p, end, stack)
        if p < 0:
            return -1
        if i < MAX_POSITIONS:
            field = np.int64(forms[row + POSITIONS + i])
            if field >= FOREIGN:
                head = data[at]
                is_map = head & 0xF0 == 0x80 or head == 0xDE or head == 0xDF
                field = F_OTHER if is_map else field - FOREIGN
            fields[field] = at
    return p


@inner
def _field(data: Bytes, p: int, size: int, forms: Bytes, row: int) -> int:
    """Return which field the key of `size` characters at `p` names; F_OTHER for another one."""
    key = np.int64(forms[row + BY_LENGTH + size])
    while key > 0:
        at = row + KEYS + (key - 1) * KEY_ROW
        if same_bytes(data, p, forms, at + KEY_TEXT, size + 1):
            return int(forms[at + KEY_FIELD])
        key = np.int64(forms[at + KEY_NEXT])
    return F_OTHER


@inner
def find_in_map(
    data: Bytes, p: int, end: int, count: int, forms: Bytes, row: int, fields: Ints, stack: Ints
) -> int:
    """Do the same for an event in map form; fields that occur twice and keys that are not ASCII give up."""
    for _ in range(count):
        if p >= end:
            return -1
        field = F_OTHER
        size = np.int64(data[p]) - 0xA0
        if size >= 0 and size <= MAX_TEXT and end - p > size:
            field = _field(data, p, size, forms, row)
        if field != F_OTHER:
            p += 1 + size
            if fields[field] >= 0:
                return -1
            fields[field] = p
        else:
            start, size = text_at(data, p, end)
            if size < 0 or (size <= MAX_TEXT and start != p + 1):
                return -1  # a known key in a longer spelling would go unseen
            p = start + size
        p = skip(data, p, end, stack)
        if p < 0:
            return -1
    return p


@inner
def has_required(forms: Bytes, row: int, fields: Ints) -> bool:
    """Tell whether an event has all required fields."""
    complete = True
    for i in range(np.int64(forms[row + REQUIRED])):
        complete = complete and fields[np.int64(forms[row + REQUIRED + 1 + i])] >= 0
    return complete
