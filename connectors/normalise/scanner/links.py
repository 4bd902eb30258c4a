"""Links of blocks (`schemas.hashing.content`), computed from tokens that are not forwarded."""

from __future__ import annotations

from typing import Final

import numpy as np

from connectors.normalise.scanner.blake2b import BLOCK_BYTES, Words, finished
from connectors.normalise.scanner.forms import F_KEYS, F_MEDIA_KEYS, F_SALT, F_SIZE, F_TOKENS, F_TYPE
from connectors.normalise.scanner.layout import Bytes, Ints
from connectors.normalise.scanner.skipping import skip
from connectors.process.compiled import inner
from connectors.process.msgpack import behind_integer, integer_at, length_at
from schemas.hashing.content import MAX_TOKEN

_HEAD: Final = 12
_TOKEN: Final = 4
_EMPTY_TEXT: Final = 0xA0
_NIL: Final = 0xC0
_EMPTY_ARRAY: Final = 0x90


@inner
def _put_word(value: int, out: Bytes, o: int) -> int:
    """Write four bytes, little-endian."""
    for i in range(4):
        out[o + i] = (value >> 8 * i) & 0xFF
    return o + 4


@inner
def _copy(source: Bytes, start: int, size: int, out: Bytes, o: int) -> int:
    for i in range(size):
        out[o + i] = source[start + i]
    return o + size


@inner
def _list_of(data: Bytes, p: int, end: int, blocks: int) -> tuple[int, bool]:
    """Return (position of the first entry or -1 without any, whether it is nil or has one for each block)."""
    if p < 0 or data[p] == _NIL:
        return -1, True
    entries, behind = length_at(data, p, end, 0x90, 0xDC)
    return behind, entries == blocks


@inner
def tells_links(data: Bytes, end: int, fields: Ints, blocks: int, block_size: int) -> bool:
    """Tell whether an event says what each of its blocks holds.

    Arrays that end before `extra_keys` do not: what is in them may be images that look alike.
    """
    if blocks == 0 or block_size == 0 or fields[F_TOKENS] < 0 or (fields[F_TYPE] < 0 and fields[F_KEYS] < 0):
        return False
    tokens, p = length_at(data, fields[F_TOKENS], end, 0x90, 0xDC)
    if tokens != blocks * block_size:
        return False
    for _ in range(tokens):
        token = integer_at(data, p, end)
        if token < 0 or token > MAX_TOKEN:
            return False
        p = behind_integer(data, p)
    _, keys_fit = _list_of(data, fields[F_KEYS], end, blocks)
    _, media_keys_fit = _list_of(data, fields[F_MEDIA_KEYS], end, blocks)
    return keys_fit and media_keys_fit


@inner
def put_links(
    data: Bytes,
    end: int,
    fields: Ints,
    blocks: int,
    lora: int,
    lora_bytes: int,
    content: Words,
    stack: Ints,
    out: Bytes,
    limit: int,
    o: int,
) -> int:
    """Write the links of an event's blocks, if `tells_links` is true of it; return where they end, or -1.

    The adapter's name is in `out` already. Messages are built after the links, in the unused part of `out`.
    """
    block_size = integer_at(data, fields[F_SIZE], end)
    _, token = length_at(data, fields[F_TOKENS], end, 0x90, 0xDC)
    key, _ = _list_of(data, fields[F_KEYS], end, blocks)
    media_key, _ = _list_of(data, fields[F_MEDIA_KEYS], end, blocks)
    salt, salt_bytes = fields[F_SALT], 0
    if salt >= 0 and data[salt] != _NIL and data[salt] != _EMPTY_TEXT:
        salt_bytes = skip(data, salt, end, stack) - salt
    message = o + 8 * blocks
    for _ in range(blocks):
        behind_key = behind_media_key = -1
        key_bytes = media_key_bytes = 0
        if key >= 0:
            behind_key = skip(data, key, end, stack)
            key_bytes = 0 if data[key] == _NIL or data[key] == _EMPTY_ARRAY else behind_key - key
        if media_key >= 0:
            behind_media_key = skip(data, media_key, end, stack)
            empty = data[media_key] == _NIL or data[media_key] == _EMPTY_ARRAY
            media_key_bytes = 0 if empty else behind_media_key - media_key
        keys = key_bytes + media_key_bytes + salt_bytes
        size = _HEAD + _TOKEN * block_size + lora_bytes + keys
        if limit - message < size + BLOCK_BYTES:
            return -1
        m = _put_word(keys, out, _put_word(lora_bytes, out, _put_word(block_size, out, message)))
        for _ in range(block_size):
            m = _put_word(integer_at(data, token, end), out, m)
            token = behind_integer(data, token)
        m = _copy(out, lora, lora_bytes, out, m)
        m = _copy(data, key, key_bytes, out, m)
        m = _copy(data, media_key, media_key_bytes, out, m)
        m = _copy(data, salt, salt_bytes, out, m)
        link = finished(content, out, message, size)
        for i in range(8):
            out[o + i] = (link >> np.uint64(8 * i)) & np.uint64(0xFF)
        if link == np.uint64(0):
            out[o + 7] = 1  # pragma: no cover - one link in 2**64
        o += 8
        key, media_key = behind_key, behind_media_key
    return o
