"""Flat tables of the fleet agent: blocks, who holds or lost them, and the losses in order.

Open addressing with linear probing in numpy columns, so that a compiled loop can walk them and a
checkpoint is a copy of columns. A key of zero marks a free slot. Capacities are powers of two.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

from pipeline.compiled import compiled

U64 = npt.NDArray[np.uint64]
U32 = npt.NDArray[np.uint32]
U16 = npt.NDArray[np.uint16]
U8 = npt.NDArray[np.uint8]
I64 = npt.NDArray[np.int64]
F64 = npt.NDArray[np.float64]

SMALLEST: Final = 1024
LOAD: Final = 0.75
"""Of a table, at most."""
SPARSE: Final = 0.1
"""A table emptier than that is rebuilt smaller."""

GHOST: Final = 0x8000
"""In `Pairs.media`: the source lost the block from its GPU, `position` says which loss."""
STORE_ONLY_BIT: Final = 8
"""Media whose removals are not announced have bits from here on."""
ANNOUNCED: Final = 0x00FF
"""Bits of the media whose removals are announced."""


class Blocks(NamedTuple):
    """A slot per block, and one more per block and lower medium."""

    keys: U64
    owners: U16
    """Sources that hold it on the medium (GPU where the key is the block's own)."""
    holders: U16
    """Sources that hold it on a medium whose removals are announced."""
    evicted: U16
    """Remembered evictions from a GPU."""
    cleared: U16
    """Remembered losses from a GPU by a clear or a restart."""
    sizes: U32
    """Tokens per block."""
    evicted_at: F64
    """Event time of the last remembered eviction, of whatever source."""


class Pairs(NamedTuple):
    """A slot per block and source that holds it or is remembered to have lost it."""

    keys: U64
    """Key of the block."""
    sources: U16
    media: U16
    """One bit a medium, and GHOST."""
    positions: U32
    """Low bits of the number of the loss; counts only with GHOST."""


class Losses(NamedTuple):
    """Ring of the losses remembered, in the order of the log; loss n is in slot n modulo the capacity."""

    keys: U64
    sources: U16
    lives: U16
    """Low bits of the number of the source's life."""
    cleared: U8
    """1 for a clear or restart, 0 for an eviction."""
    times: F64
    stored: I64
    """Tokens stored in that pool before; -1 when the record does not say."""


_Columns = TypeVar("_Columns", bound=tuple[Any, ...])


def mapped(columns: _Columns, change: Callable[[Any], Any]) -> _Columns:
    """Return the columns of a table, each one changed."""
    return type(columns)(*map(change, columns))


def doubled(column: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return a column of twice the length; what is new is zero."""
    return np.concatenate((column, np.zeros_like(column)))


BLOCK_BYTES: Final = 28
PAIR_BYTES: Final = 16
LOSS_BYTES: Final = 29


def blocks_of(capacity: int) -> Blocks:
    """Return an empty table."""
    return Blocks(
        np.zeros(capacity, np.uint64),
        np.zeros(capacity, np.uint16),
        np.zeros(capacity, np.uint16),
        np.zeros(capacity, np.uint16),
        np.zeros(capacity, np.uint16),
        np.zeros(capacity, np.uint32),
        np.zeros(capacity, np.float64),
    )


def pairs_of(capacity: int) -> Pairs:
    """Return an empty table."""
    return Pairs(
        np.zeros(capacity, np.uint64),
        np.zeros(capacity, np.uint16),
        np.zeros(capacity, np.uint16),
        np.zeros(capacity, np.uint32),
    )


def losses_of(capacity: int) -> Losses:
    """Return an empty ring."""
    return Losses(
        np.zeros(capacity, np.uint64),
        np.zeros(capacity, np.uint16),
        np.zeros(capacity, np.uint16),
        np.zeros(capacity, np.uint8),
        np.zeros(capacity, np.float64),
        np.zeros(capacity, np.int64),
    )


def capacity_for(entries: int) -> int:
    """Return the smallest capacity at which a table of so many entries is half full at most."""
    capacity = SMALLEST
    while capacity * LOAD < entries:
        capacity *= 2
    return capacity


@compiled
def home_of_block(key: np.uint64, mask: int) -> int:
    """Return where the search for a block begins; the key's high bits, as its low ones decide on sampling."""
    home: int = np.int64((key >> np.uint64(24)) & np.uint64(mask))
    return home


@compiled
def home_of_pair(key: np.uint64, source: int, mask: int) -> int:
    """Return where the search for a pair begins."""
    mixed = (key ^ (np.uint64(source + 1) * np.uint64(0x9E3779B97F4A7C15))) * np.uint64(0xD6E8FEB86659FD93)
    home: int = np.int64((mixed >> np.uint64(28)) & np.uint64(mask))
    return home


@compiled
def find_block(keys: U64, key: np.uint64) -> int:
    """Return the slot of a block, or -1 - (the free slot where it belongs)."""
    mask = len(keys) - 1
    at = home_of_block(key, mask)
    while keys[at] != np.uint64(0):
        if keys[at] == key:
            return at
        at = (at + 1) & mask
    return -1 - at


@compiled
def find_pair(pairs: Pairs, key: np.uint64, source: int) -> int:
    """Return the slot of a pair, or -1 - (the free slot where it belongs)."""
    mask = len(pairs.keys) - 1
    at = home_of_pair(key, source, mask)
    while pairs.keys[at] != np.uint64(0):
        if pairs.keys[at] == key and pairs.sources[at] == source:
            return at
        at = (at + 1) & mask
    return -1 - at


@compiled
def free_block(blocks: Blocks, hole: int) -> None:
    """Free a slot; displaced slots behind it move up, so that searches find no gap (Knuth 6.4 R)."""
    mask = len(blocks.keys) - 1
    at = hole
    while True:
        at = (at + 1) & mask
        key = blocks.keys[at]
        if key == np.uint64(0):
            break
        home = home_of_block(key, mask)
        if ((at - home) & mask) >= ((at - hole) & mask):
            blocks.keys[hole] = key
            blocks.owners[hole] = blocks.owners[at]
            blocks.holders[hole] = blocks.holders[at]
            blocks.evicted[hole] = blocks.evicted[at]
            blocks.cleared[hole] = blocks.cleared[at]
            blocks.sizes[hole] = blocks.sizes[at]
            blocks.evicted_at[hole] = blocks.evicted_at[at]
            hole = at
    blocks.keys[hole] = np.uint64(0)


@compiled
def free_pair(pairs: Pairs, hole: int) -> None:
    """Likewise for a pair."""
    mask = len(pairs.keys) - 1
    at = hole
    while True:
        at = (at + 1) & mask
        key = pairs.keys[at]
        if key == np.uint64(0):
            break
        home = home_of_pair(key, pairs.sources[at], mask)
        if ((at - home) & mask) >= ((at - hole) & mask):
            pairs.keys[hole] = key
            pairs.sources[hole] = pairs.sources[at]
            pairs.media[hole] = pairs.media[at]
            pairs.positions[hole] = pairs.positions[at]
            hole = at
    pairs.keys[hole] = np.uint64(0)


@compiled
def copy_blocks(old: Blocks, new: Blocks) -> None:
    """Put every block of one table into another, which is empty and large enough."""
    for slot in range(len(old.keys)):
        key = old.keys[slot]
        if key != np.uint64(0):
            at = -1 - find_block(new.keys, key)
            new.keys[at] = key
            new.owners[at] = old.owners[slot]
            new.holders[at] = old.holders[slot]
            new.evicted[at] = old.evicted[slot]
            new.cleared[at] = old.cleared[slot]
            new.sizes[at] = old.sizes[slot]
            new.evicted_at[at] = old.evicted_at[slot]


@compiled
def copy_pairs(old: Pairs, new: Pairs) -> None:
    """Likewise for pairs."""
    for slot in range(len(old.keys)):
        key = old.keys[slot]
        if key != np.uint64(0):
            at = -1 - find_pair(new, key, old.sources[slot])
            new.keys[at] = key
            new.sources[at] = old.sources[slot]
            new.media[at] = old.media[slot]
            new.positions[at] = old.positions[slot]
