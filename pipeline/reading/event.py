"""Reads one store or removal of an events record, as `schemas.events` defines it."""

from __future__ import annotations

from typing import Final, NamedTuple

from connectors.process.compiled import inner
from connectors.process.msgpack import Bytes, behind_integer, binary_at, integer_at, length_at, text_at
from pipeline.reading.words import (
    BLOCK_SIZE,
    GPU,
    GROUP_IDX,
    HASHES,
    LINKS,
    LORA,
    MEDIUM,
    NO_WORD,
    PARENT,
    RAW_MEDIUM,
    REMOVED,
    SIZE_BYTES,
    SLIDING_WINDOW,
    STORE_ONLY,
    STORED,
    TOKENS,
    TYPE,
    is_word,
    key_at,
)
from schemas.hashes import HASH_BYTES

REFUSED: Final = -1
NONE: Final = -2
"""In place of the length of a text or binary value that is not there."""
_MOST_SIZE: Final = 2**32 - 1
_MOST_GROUP: Final = 2**16 - 1
_FALSE, _TRUE = 0xC2, 0xC3
_OF_REMOVALS: Final = 1 << TYPE | 1 << HASHES | 1 << MEDIUM | 1 << RAW_MEDIUM | 1 << GROUP_IDX


class ReadEvent(NamedTuple):
    """A store or removal; texts and hashes as (position, bytes)."""

    end: int
    """Position after it; REFUSED if it is, or might be, anything else: then no other field means anything."""
    stored: bool
    hashes: int
    """Position of the first one."""
    hash_count: int
    block_size: int
    parent: int
    """Position, or NONE."""
    medium: int
    medium_bytes: int
    """NONE for GPUs."""
    group_idx: int
    lora: int
    lora_bytes: int
    """NONE without one."""
    links: int
    """Position of the first one, or NONE."""


@inner
def event_at(data: Bytes, p: int, end: int) -> ReadEvent:
    """Read the event at `p`; refuse it unless all of its fields are known, valid and come only once."""
    fields, p = length_at(data, p, end, 0x80, 0xDE)
    fine, stored, seen = fields > 0, False, 0
    hashes = hash_bytes = block_size = group_idx = 0
    parent, medium, medium_bytes, lora, lora_bytes = NONE, 0, NONE, 0, NONE
    links, link_bytes = NONE, 0
    key = NO_WORD
    for _ in range(fields):
        key, p = key_at(data, p, end, key + 1)
        if key == NO_WORD or seen >> key & 1 != 0:
            fine = False
            break
        seen |= 1 << key
        if key == TYPE:
            start, size = text_at(data, p, end)
            stored = is_word(data, start, size, STORED)
            fine = stored or is_word(data, start, size, REMOVED)
            p = start + size
        elif key == HASHES:
            hashes, hash_bytes = binary_at(data, p, end)
            fine = hash_bytes >= 0 and hash_bytes % HASH_BYTES == 0
            p = hashes + hash_bytes
        elif key == LINKS:
            links, link_bytes = binary_at(data, p, end)
            fine = link_bytes >= 0
            p = links + link_bytes
        elif key == PARENT:
            start, size = binary_at(data, p, end)
            fine = size in (HASH_BYTES, NONE)
            parent = start if size == HASH_BYTES else NONE
            p = start + size if size != NONE else p + 1
        elif key in (BLOCK_SIZE, TOKENS, GROUP_IDX, SLIDING_WINDOW, SIZE_BYTES):
            value = integer_at(data, p, end)
            fine = value >= 0 or (value == NONE and key == SLIDING_WINDOW)
            if key == SIZE_BYTES:
                # Blocks whose bytes are known are kept one by one.
                fine = fine and value == 0
            elif key == BLOCK_SIZE:
                block_size = value
                fine = fine and value <= _MOST_SIZE
            elif key == GROUP_IDX:
                group_idx = value
                fine = fine and value <= _MOST_GROUP
            if fine:
                p = behind_integer(data, p)
        elif key == STORE_ONLY:
            fine = p < end and (data[p] == _FALSE or data[p] == _TRUE)
            p += 1
        else:
            start, size = text_at(data, p, end)
            fine = size >= 0 or (size == NONE and key != MEDIUM)
            p = start + size if size != NONE else p + 1
            if key == MEDIUM:
                medium, medium_bytes = start, NONE if is_word(data, start, size, GPU) else size
            elif key == LORA:
                lora, lora_bytes = start, size
        if not fine:
            break
    fine = fine and seen >> TYPE & 1 != 0 and seen >> HASHES & 1 != 0
    fine = fine and (links == NONE or link_bytes == hash_bytes)
    fine = fine and (seen >> BLOCK_SIZE & 1 != 0 if stored else seen & ~_OF_REMOVALS == 0)
    return ReadEvent(
        p if fine else REFUSED,
        stored,
        hashes,
        hash_bytes // HASH_BYTES,
        block_size,
        parent,
        medium,
        medium_bytes,
        group_idx,
        lora,
        lora_bytes,
        links if link_bytes > 0 else NONE,
    )
