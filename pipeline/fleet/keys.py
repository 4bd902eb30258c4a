"""Keys of blocks in the fleet's tables: evenly spread, and different for each hash domain and group."""

from __future__ import annotations

import numpy as np

from pipeline.fleet.index import U64

_SEED = 0x9E3779B97F4A7C15
_MASK = (1 << 64) - 1


def constant_of(number: int) -> int:
    """Return a constant as good as random for each number."""
    value = ((number + 1) * _SEED) & _MASK
    value = ((value ^ (value >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    value = ((value ^ (value >> 27)) * 0x94D049BB133111EB) & _MASK
    return value ^ (value >> 31)


def keys_of(hashes: U64, constants: U64) -> U64:
    """Return keys of block hashes: a bijection within each constant (the finaliser of SplitMix64).

    The hash whose key would be zero, which marks free slots, shares a key with one other.
    """
    keys: U64 = hashes ^ constants
    keys ^= keys >> np.uint64(30)
    keys *= np.uint64(0xBF58476D1CE4E5B9)
    keys ^= keys >> np.uint64(27)
    keys *= np.uint64(0x94D049BB133111EB)
    keys ^= keys >> np.uint64(31)
    keys[keys == 0] = 1
    return keys


def sampled(keys: U64, one_in: int) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    """Return which keys belong to the sample: by their low bits, so all sources sample the same blocks."""
    chosen: np.ndarray[tuple[int], np.dtype[np.bool_]] = (keys & np.uint64(0xFFFFFF)) % np.uint64(one_in) == 0
    return chosen
