# Copied from schemas/hashes.py by `python -m pipeline.generated`.
"""Block hashes as they travel: packed big-endian unsigned 64-bit words."""

import struct

HASH_BYTES = 8
"""Bytes per packed hash. Every `hashes` field holds `HASH_BYTES * n` bytes, hash i at `HASH_BYTES * i`."""


def unpack_hashes(packed: bytes) -> tuple[int, ...]:
    """Return the n unsigned 64-bit hashes of an 8n-byte field, in order.

    Raises ValueError when the length is not a multiple of eight.
    """
    if len(packed) % HASH_BYTES:
        raise ValueError(f"packed hashes have {len(packed)} bytes, not a multiple of {HASH_BYTES}")
    return struct.unpack(f">{len(packed) // HASH_BYTES}Q", packed)
