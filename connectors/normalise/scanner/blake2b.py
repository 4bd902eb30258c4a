"""BLAKE2b for compiled code: digests of eight bytes. Source: RFC 7693."""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from connectors.normalise.scanner.layout import Bytes
from connectors.process.compiled import (
    compiled_nogil,
    inner,
    little_endian_at,
    pointer_to_bytes,
    pointer_to_words,
)

Words = NDArray[np.uint64]
"""Inside compiled functions a pointer, like `Bytes`."""

BLOCK_BYTES: Final = 128
STATE: Final = 9
"""Words of a state: the eight of the chain, and how many bytes went into it."""
_DIGEST_BYTES: Final = 8
_IV: Final = np.array(
    [
        0x6A09E667F3BCC908,
        0xBB67AE8584CAA73B,
        0x3C6EF372FE94F82B,
        0xA54FF53A5F1D36F1,
        0x510E527FADE682D1,
        0x9B05688C2B3E6C1F,
        0x1F83D9ABFB41BD6B,
        0x5BE0CD19137E2179,
    ],
    np.uint64,
)
_SIGMA: Final = 8 * np.array(
    [
        [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15],
        [14, 10, 4, 8, 9, 15, 13, 6, 1, 12, 0, 2, 11, 7, 5, 3],
        [11, 8, 12, 0, 5, 2, 15, 13, 10, 14, 3, 6, 7, 1, 9, 4],
        [7, 9, 3, 1, 13, 12, 11, 14, 2, 6, 5, 10, 4, 0, 15, 8],
        [9, 0, 5, 7, 2, 4, 10, 15, 14, 1, 11, 12, 6, 8, 3, 13],
        [2, 12, 6, 10, 0, 11, 8, 3, 4, 13, 7, 5, 15, 14, 1, 9],
        [12, 5, 1, 15, 14, 13, 4, 10, 0, 7, 6, 3, 9, 2, 8, 11],
        [13, 11, 7, 14, 12, 1, 3, 9, 5, 0, 15, 4, 8, 6, 2, 10],
        [6, 15, 14, 9, 11, 3, 0, 8, 12, 2, 13, 7, 1, 4, 10, 5],
        [10, 2, 8, 4, 7, 6, 1, 5, 15, 11, 9, 14, 3, 12, 13, 0],
        [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15],
        [14, 10, 4, 8, 9, 15, 13, 6, 1, 12, 0, 2, 11, 7, 5, 3],
    ],
    np.int64,
)
"""Byte offset in the block of the word that each step of each round takes."""


@inner
def _mixed(
    a: np.uint64, b: np.uint64, c: np.uint64, d: np.uint64, x: np.uint64, y: np.uint64
) -> tuple[np.uint64, np.uint64, np.uint64, np.uint64]:
    a = a + b + x
    d ^= a
    d = (d >> np.uint64(32)) | (d << np.uint64(32))
    c = c + d
    b ^= c
    b = (b >> np.uint64(24)) | (b << np.uint64(40))
    a = a + b + y
    d ^= a
    d = (d >> np.uint64(16)) | (d << np.uint64(48))
    c = c + d
    b ^= c
    b = (b >> np.uint64(63)) | (b << np.uint64(1))
    return a, b, c, d


@inner
def _compress(state: Words, at: int, data: Bytes, p: int, counted: int, last: bool) -> None:
    """Compress a block of 128 bytes into the state at `at`; `counted` is the bytes up to the block's end."""
    v0, v1, v2, v3 = state[at], state[at + 1], state[at + 2], state[at + 3]
    v4, v5, v6, v7 = state[at + 4], state[at + 5], state[at + 6], state[at + 7]
    v8, v9, v10, v11 = _IV[0], _IV[1], _IV[2], _IV[3]
    v12, v13, v14, v15 = _IV[4] ^ np.uint64(counted), _IV[5], _IV[6], _IV[7]
    if last:
        v14 = ~v14
    for r in range(12):
        s = _SIGMA[r]
        v0, v4, v8, v12 = _mixed(
            v0, v4, v8, v12, little_endian_at(data, p + s[0]), little_endian_at(data, p + s[1])
        )
        v1, v5, v9, v13 = _mixed(
            v1, v5, v9, v13, little_endian_at(data, p + s[2]), little_endian_at(data, p + s[3])
        )
        v2, v6, v10, v14 = _mixed(
            v2, v6, v10, v14, little_endian_at(data, p + s[4]), little_endian_at(data, p + s[5])
        )
        v3, v7, v11, v15 = _mixed(
            v3, v7, v11, v15, little_endian_at(data, p + s[6]), little_endian_at(data, p + s[7])
        )
        v0, v5, v10, v15 = _mixed(
            v0, v5, v10, v15, little_endian_at(data, p + s[8]), little_endian_at(data, p + s[9])
        )
        v1, v6, v11, v12 = _mixed(
            v1, v6, v11, v12, little_endian_at(data, p + s[10]), little_endian_at(data, p + s[11])
        )
        v2, v7, v8, v13 = _mixed(
            v2, v7, v8, v13, little_endian_at(data, p + s[12]), little_endian_at(data, p + s[13])
        )
        v3, v4, v9, v14 = _mixed(
            v3, v4, v9, v14, little_endian_at(data, p + s[14]), little_endian_at(data, p + s[15])
        )
    state[at] ^= v0 ^ v8
    state[at + 1] ^= v1 ^ v9
    state[at + 2] ^= v2 ^ v10
    state[at + 3] ^= v3 ^ v11
    state[at + 4] ^= v4 ^ v12
    state[at + 5] ^= v5 ^ v13
    state[at + 6] ^= v6 ^ v14
    state[at + 7] ^= v7 ^ v15


@inner
def finished(begun: Words, data: Bytes, p: int, size: int) -> np.uint64:
    """Return the digest of a message of at least one byte, as a little-endian number.

    `begun` needs room for a second state after the one to begin with, and `data` room after the message for
    zeros up to the end of a block.
    """
    for i in range(STATE):
        begun[STATE + i] = begun[i]
    padded = (size + BLOCK_BYTES - 1) // BLOCK_BYTES * BLOCK_BYTES
    for i in range(size, padded):
        data[p + i] = 0
    counted = np.int64(begun[STATE - 1])
    for at in range(0, padded, BLOCK_BYTES):
        last = at + BLOCK_BYTES == padded
        _compress(begun, STATE, data, p + at, counted + (size if last else at + BLOCK_BYTES), last)
    digest: np.uint64 = begun[STATE]
    return digest


@compiled_nogil
def _absorb(state: Words, block: NDArray[np.uint8]) -> None:
    """Compress a first block that others follow."""
    words, data = pointer_to_words(state.ctypes.data), pointer_to_bytes(block.ctypes.data)
    _compress(words, 0, data, 0, BLOCK_BYTES, False)
    state[STATE - 1] = BLOCK_BYTES


def state_of(key: bytes, person: bytes) -> Words:
    """Return the state before the message, for a key of up to 64 bytes, empty for none."""
    state = np.zeros(STATE, np.uint64)
    state[: STATE - 1] = _IV
    state[0] ^= np.uint64(0x01010000 ^ len(key) << 8 ^ _DIGEST_BYTES)
    state[6:8] ^= np.frombuffer(person.ljust(16, b"\0"), "<u8")
    if key:
        _absorb(state, np.frombuffer(key.ljust(BLOCK_BYTES, b"\0"), np.uint8).copy())
    return state
