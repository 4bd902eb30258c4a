"""Kafka's hash of a record's key, by which the default partitioner of nearly every client chooses.

Source: `murmur2` in org.apache.kafka.common.utils.Utils of Apache Kafka; seed and multiplier are its.
"""

from __future__ import annotations

import struct

_SEED = 0x9747B28C
_MULTIPLIER = 0x5BD1E995
_32_BITS = 0xFFFFFFFF


def murmur2(key: bytes) -> int:
    """Return the hash, as an unsigned number of 32 bits (Java's is the same bits, signed)."""
    hashed = _SEED ^ len(key)
    words = len(key) & ~3
    for (word,) in struct.iter_unpack("<I", key[:words]):
        word = word * _MULTIPLIER & _32_BITS
        word = (word ^ word >> 24) * _MULTIPLIER & _32_BITS
        hashed = hashed * _MULTIPLIER & _32_BITS ^ word
    if words < len(key):
        hashed = (hashed ^ int.from_bytes(key[words:], "little")) * _MULTIPLIER & _32_BITS
    hashed = (hashed ^ hashed >> 13) * _MULTIPLIER & _32_BITS
    return hashed ^ hashed >> 15
