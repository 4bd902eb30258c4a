"""A holder in one word of 64 bits: its pool, the size of the block there, and how many copies it has.

A block that only one pool holds, as most are, has its holder in its row. One that several hold has a set of
such words, and its row says where. From the high bits down:

    pool 22 | size code 14 | several sizes 1 | copies 27
    all ones 22 | place of a set 42
"""

from __future__ import annotations

from typing import Final

import numpy as np

from connectors.process.compiled import compiled

MOST_POOLS: Final = (1 << 22) - 1
"""Numbers of pools are below this, which marks a set instead."""
MOST_SIZES: Final = 1 << 14
"""Size codes of a pool are below this: `worker.max_pool_sizes` allows no more."""
MOST_COPIES: Final = (1 << 27) - 1
"""A count of copies goes no higher: what comes beyond that is not counted."""

POOL_SHIFT: Final = np.uint64(42)
SIZE_SHIFT: Final = np.uint64(28)
SIZE_MASK: Final = np.uint64(MOST_SIZES - 1)
COPIES_MASK: Final = np.uint64(MOST_COPIES)
SEVERAL_SIZES: Final = np.uint64(1 << 27)
"""There are also copies of other sizes than the first one's."""
ONE_COPY: Final = np.uint64(1)
SET: Final = np.uint64(MOST_POOLS) << POOL_SHIFT
OFFSET_MASK: Final = np.uint64((1 << 42) - 1)
NOTHING: Final = np.uint64(0)
"""No holder: the row is free."""


@compiled
def word_of(pool: int, size_code: int, copies: int) -> np.uint64:
    """Return the word of a holder."""
    word: np.uint64 = (
        (np.uint64(pool) << POOL_SHIFT) | (np.uint64(size_code) << SIZE_SHIFT) | np.uint64(copies)
    )
    return word


@compiled
def pool_of(word: np.uint64) -> int:
    """Return the number of a holder's pool; MOST_POOLS for a set."""
    pool: int = np.int64(word >> POOL_SHIFT)
    return pool


@compiled
def size_code_of(word: np.uint64) -> int:
    """Return the code of the block size of a holder's first copy."""
    code: int = np.int64((word >> SIZE_SHIFT) & SIZE_MASK)
    return code
