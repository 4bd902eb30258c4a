"""Keys of blocks in the fleet's tables: evenly spread, and different for each hash domain and group."""

from __future__ import annotations

import functools

import numpy as np

from connectors.process.compiled import compiled

_SEED = 0x9E3779B97F4A7C15
_MASK = (1 << 64) - 1


@functools.cache
def constant_of(number: int) -> int:
    """Return a pseudorandom constant for each number."""
    value = ((number + 1) * _SEED) & _MASK
    value = ((value ^ (value >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    value = ((value ^ (value >> 27)) * 0x94D049BB133111EB) & _MASK
    return value ^ (value >> 31)


@compiled
def key_of(block_hash: np.uint64, constant: np.uint64) -> np.uint64:
    """Return the key of a block hash: a bijection within each constant (the finaliser of SplitMix64).

    Zero marks free slots, so the hash that would get it shares its key with one other hash.
    """
    key: np.uint64 = block_hash ^ constant
    key = (key ^ (key >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    key = (key ^ (key >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    key ^= key >> np.uint64(31)
    if key == np.uint64(0):
        key = np.uint64(1)
    return key
