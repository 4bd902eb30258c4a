"""Sets of holders, for blocks that several pools hold: pieces of one array of words.

A set of class c has 2**c words. The high half of the first one is its class, the low half its number of
holders, which follow in no particular order. Free sets of a class form a linked list.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt

from connectors.process.compiled import compiled
from pipeline.index.holdings.words import POOL_SHIFT

Words = npt.NDArray[np.uint64]
Counts = npt.NDArray[np.int64]

ROWS_USED, HEAP_USED, FREE = 0, 1, 2
"""Indices of the counters: rows in use, words of the heap ever used, and from FREE on, for each class, the
place of its first free set plus one."""
CLASSES: Final = 40
SMALLEST: Final = 2
"""Class of a set of up to three holders."""

_HALF = np.uint64(32)
_LOW = np.uint64(0xFFFFFFFF)


def no_counts() -> Counts:
    """Return the counters of an empty table."""
    return np.zeros(FREE + CLASSES, np.int64)


@compiled
def count_of(heap: Words, offset: int) -> int:
    """Return how many holders a set has."""
    count: int = np.int64(heap[offset] & _LOW)
    return count


@compiled
def place_of(heap: Words, offset: int, pool: int) -> int:
    """Return where in the heap the word of a pool is, -1 if it does not hold the block."""
    wanted = np.uint64(pool)
    for at in range(offset + 1, offset + 1 + count_of(heap, offset)):
        if heap[at] >> POOL_SHIFT == wanted:
            return at
    return -1


@compiled
def new_set(heap: Words, counts: Counts, size_class: int) -> int:
    """Return the place of an empty set, -1 if the heap has no room for it."""
    offset = counts[FREE + size_class] - 1
    if offset >= 0:
        counts[FREE + size_class] = np.int64(heap[offset])
    else:
        offset = counts[HEAP_USED]
        if offset + (1 << size_class) > len(heap):
            return -1
        counts[HEAP_USED] += 1 << size_class
    heap[offset] = np.uint64(size_class) << _HALF
    place: int = offset
    return place


@compiled
def free_set(heap: Words, counts: Counts, offset: int) -> None:
    """Put a set on the free list of its class."""
    size_class = np.int64(heap[offset] >> _HALF)
    heap[offset] = np.uint64(counts[FREE + size_class])
    counts[FREE + size_class] = offset + 1


@compiled
def with_holder(heap: Words, counts: Counts, offset: int, word: np.uint64) -> int:
    """Add a holder to a set; return the set's new place, or -1, and change nothing, if there is no room."""
    size_class, count = np.int64(heap[offset] >> _HALF), count_of(heap, offset)
    if count + 1 == 1 << size_class:
        larger = new_set(heap, counts, size_class + 1)
        if larger < 0:
            return -1
        for at in range(1, count + 1):
            heap[larger + at] = heap[offset + at]
        heap[larger] += np.uint64(count)
        free_set(heap, counts, offset)
        offset = larger
    heap[offset + 1 + count] = word
    heap[offset] += np.uint64(1)
    return offset


@compiled
def without_holder(heap: Words, counts: Counts, offset: int, place: int) -> Any:
    """Remove the holder at a place from a set. If one is left, free the set and return its word, else 0."""
    last = offset + count_of(heap, offset)
    heap[place] = heap[last]
    heap[offset] -= np.uint64(1)
    if last - offset > 2:
        return np.uint64(0)
    left = heap[offset + 1]
    free_set(heap, counts, offset)
    return left
