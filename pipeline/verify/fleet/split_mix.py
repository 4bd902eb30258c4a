"""The finaliser of SplitMix64, by which agents mix hashes, and the same backwards."""

from __future__ import annotations

MASK = (1 << 64) - 1
_FIRST, _SECOND = 0xBF58476D1CE4E5B9, 0x94D049BB133111EB
_FIRST_BACK, _SECOND_BACK = pow(_FIRST, -1, 1 << 64), pow(_SECOND, -1, 1 << 64)


def mixed(value: int) -> int:
    """Return the 64 bits, mixed."""
    value = ((value ^ value >> 30) * _FIRST) & MASK
    value = ((value ^ value >> 27) * _SECOND) & MASK
    return value ^ value >> 31


def unmixed(value: int) -> int:
    """Return the 64 bits that were mixed into this value."""
    value = ((value ^ value >> 31 ^ value >> 62) * _SECOND_BACK) & MASK
    value = ((value ^ value >> 27 ^ value >> 54) * _FIRST_BACK) & MASK
    return value ^ value >> 30 ^ value >> 60
