"""Content hashes of blocks from their links, as compiled code."""

from __future__ import annotations

from typing import Final

import numpy as np

from connectors.process.compiled import compiled
from schemas.hashing.content import FACTOR, FIRST_FACTOR, SECOND_FACTOR

UNKNOWN: Final = np.uint64(0)
_FACTOR, _FIRST, _SECOND = np.uint64(FACTOR), np.uint64(FIRST_FACTOR), np.uint64(SECOND_FACTOR)


@compiled
def follow(before: np.uint64, link: np.uint64) -> np.uint64:
    """Return `schemas.hashing.content.follow` of them."""
    value: np.uint64 = before * _FACTOR + link
    value = (value ^ (value >> np.uint64(30))) * _FIRST
    value = (value ^ (value >> np.uint64(27))) * _SECOND
    value ^= value >> np.uint64(31)
    return value if value != UNKNOWN else np.uint64(1)
