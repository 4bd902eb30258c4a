"""Canonical form of the block hashes that engines publish: packed big-endian unsigned 64-bit words.

Engines publish signed or unsigned 64-bit integers or the raw digest as bytes, sometimes both in one
stream. vLLM's own integer form is the last eight bytes of the digest, big-endian, so that is the form
in which all of them can be joined.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from hashlib import blake2b
from zlib import crc32

from connectors.normalise.errors import EventError
from connectors.normalise.wire import MAX_GROUP_IDX
from schemas.hashes import HASH_BYTES

_WORD = struct.Struct(">Q")
_WORD_MASK = (1 << 64) - 1


def pack_hash(value: int | bytes) -> bytes:
    """Return the eight bytes of one hash.

    Raises EventError(bad_hash_length) for bytes shorter than eight or of odd length.
    """
    if isinstance(value, int):
        return _WORD.pack(value & _WORD_MASK)
    if len(value) < HASH_BYTES or len(value) % 2:
        raise EventError("bad_hash_length")
    return value[-HASH_BYTES:]


def pack_hashes(values: Sequence[int | bytes]) -> bytes:
    """Return the 8n bytes of n hashes, in order.

    Raises EventError(bad_hash_length) as `pack_hash` does.
    """
    return b"".join([pack_hash(value) for value in values])


DEFAULT_TENANT = "default"


def object_hash(key: str) -> bytes:
    """Return eight bytes that stand for an object's key, which itself is not forwarded."""
    return blake2b(key.encode(), digest_size=HASH_BYTES).digest()


def tenant_group(tenant: str) -> int:
    """Return the group of a tenant's objects: 0 for the default tenant."""
    return 0 if tenant == DEFAULT_TENANT else 1 + crc32(tenant.encode()) % MAX_GROUP_IDX
