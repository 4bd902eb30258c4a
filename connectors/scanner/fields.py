"""Find where the fields of an event are, in array form or in map form."""

from __future__ import annotations

from typing import Final

import numpy as np

from connectors.compiled import inner
from connectors.scanner.layout import Bytes, Ints
from connectors.scanner.reading import skip, text_at
from connectors.scanner.texts import (
    BLOCK_REMOVED,
    BLOCK_STORED,
    K_GROUP,
    K_HASHES,
    K_KIND,
    K_LORA,
    K_LORA_ID,
    K_MEDIUM,
    K_PARENT,
    K_SESSION,
    K_SIZE,
    K_TYPE,
    K_WINDOW,
    is_text,
)

# Positions in `fields`, of where the values of an event begin; -1 where it has none.
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
    F_TYPE,
) = range(11)
FIELDS: Final = 11


@inner
def find_in_array(data: Bytes, p: int, end: int, count: int, fields: Ints, stack: Ints) -> int:
    """Set `fields` of an event in array form, whose elements begin at `p`; return where it ends, or -1."""
    if count < 1:
        return -1
    stored = is_text(data, p, end, BLOCK_STORED)
    least = 5 if stored else 2 if is_text(data, p, end, BLOCK_REMOVED) else 1
    if count < least:
        return -1
    for i in range(count):
        at = p
        p = skip(data, p, end, stack)
        if p < 0:
            return -1
        if i == 0:
            fields[F_TYPE] = at
        elif stored:
            if i == 1:
                fields[F_HASHES] = at
            elif i == 2:
                fields[F_PARENT] = at
            elif i == 4:
                fields[F_SIZE] = at
            elif i == 5:
                fields[F_LORA_ID] = at
            elif i == 6:
                fields[F_MEDIUM] = at
            elif i == 7:
                fields[F_LORA] = at
            elif i == 9:
                fields[F_GROUP] = at
            elif i == 10:
                fields[F_KIND] = at
            elif i == 11:
                fields[F_WINDOW] = at
        elif i == 1:
            fields[F_HASHES] = at
        elif i == 2:
            fields[F_MEDIUM] = at
        elif i == 3:
            fields[F_GROUP] = at
    return p


@inner
def _key(data: Bytes, p: int, end: int) -> int:
    """Return which field the map key at `p` names; -1 for another one."""
    size = np.int64(data[p])
    if size == 0xA4:
        return F_TYPE if is_text(data, p, end, K_TYPE) else -1
    if size == 0xAC:
        return F_HASHES if is_text(data, p, end, K_HASHES) else -1
    if size == 0xB1:
        return F_PARENT if is_text(data, p, end, K_PARENT) else -1
    if size == 0xA6:
        return F_MEDIUM if is_text(data, p, end, K_MEDIUM) else -1
    if size == 0xA7:
        return F_LORA_ID if is_text(data, p, end, K_LORA_ID) else -1
    if size == 0xA9:
        if is_text(data, p, end, K_GROUP):
            return F_GROUP
        return F_LORA if is_text(data, p, end, K_LORA) else -1
    if size == 0xAA:
        if is_text(data, p, end, K_SIZE):
            return F_SIZE
        return F_SESSION if is_text(data, p, end, K_SESSION) else -1
    if size == 0xB2:
        return F_KIND if is_text(data, p, end, K_KIND) else -1
    if size == 0xBC:
        return F_WINDOW if is_text(data, p, end, K_WINDOW) else -1
    return -1


@inner
def find_in_map(data: Bytes, p: int, end: int, count: int, fields: Ints, stack: Ints) -> int:
    """The same for an event in map form; names that occur twice or are no short ASCII text give up."""
    for _ in range(count):
        start, size = text_at(data, p, end)
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
        p = skip(data, p, end, stack)
        if p < 0:
            return -1
    return p
