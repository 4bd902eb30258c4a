"""Flat tables of the fleet agent: blocks, who holds or lost them, and the losses in order.

Open addressing with linear probing in numpy arrays, so that a compiled loop can walk them and a
checkpoint is a copy. A slot with a key of zero is free. Capacities are powers of two.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt

from connectors.process.compiled import compiled, compiled_nogil

U64 = npt.NDArray[np.uint64]
U32 = npt.NDArray[np.uint32]
U16 = npt.NDArray[np.uint16]
U8 = npt.NDArray[np.uint8]
Bools = npt.NDArray[np.bool_]
I64 = npt.NDArray[np.int64]
F64 = npt.NDArray[np.float64]

FETCHED_AHEAD: Final = 32
"""Changes or rows whose slots are on their way into the cache."""
SMALLEST: Final = 1024
LOAD: Final = 0.75
"""Of a table, at most."""
SPARSE: Final = 0.1
"""A table emptier than that is rebuilt smaller."""

HAS_LOSS: Final = 0x8000
"""In `Pairs.media`: the source lost the block from its GPU, `position` says which loss."""
RECEIVED: Final = 0x4000
"""In `Pairs.media`: the source received KV when the block came, to whichever medium. Until it holds none."""
MEDIA: Final = 0x3FFF
"""Bits of media."""
STORE_ONLY_BIT: Final = 8
"""Media whose removals are not announced have bits from here on."""
ANNOUNCED: Final = 0x00FF
"""Bits of the media whose removals are announced."""


# Rows of structured arrays: what belongs together is in one line of the processor's cache.
Blocks: TypeAlias = npt.NDArray[Any]
Pairs: TypeAlias = npt.NDArray[Any]
Losses: TypeAlias = npt.NDArray[Any]

BLOCK: Final = np.dtype(
    [
        ("key", "<u8"),
        # Event time of the last remembered eviction, of whatever source.
        ("evicted_at", "<f8"),
        # Tokens per block.
        ("size", "<u4"),
        # Sources that hold it on the medium (GPU where the key is the block's own).
        ("owners", "<u2"),
        # Sources that hold it on a medium whose removals are announced.
        ("holders", "<u2"),
        # Remembered losses from a GPU: evictions, and those by a clear or a restart.
        ("evicted", "<u2"),
        ("cleared", "<u2"),
        # Number of the hash domain, group and LoRA of its chain, how deep in the chain it is, and the chain's
        # first block: 0 where that is not known, and in entries of lower media.
        ("lineage", "<u2"),
        ("depth", "<u2"),
        ("root", "<u8"),
        # Of the owners, the holders and the evictions, those of sources that received KV when the block came.
        ("received", "<u2"),
        ("received_holders", "<u2"),
        ("received_evicted", "<u2"),
    ],
    align=True,
)
"""A row per block, and one more per block and lower medium."""
PAIR: Final = np.dtype(
    [
        # Of the block.
        ("key", "<u8"),
        # Low bits of the number of the loss; counts only with HAS_LOSS.
        ("position", "<u4"),
        ("source", "<u2"),
        # One bit a medium, RECEIVED and HAS_LOSS.
        ("media", "<u2"),
    ],
    align=True,
)
"""A row per block and source that holds it or is remembered to have lost it."""
LOSS: Final = np.dtype(
    [
        # Of the block.
        ("key", "<u8"),
        ("time", "<f8"),
        # Tokens stored in that pool before; -1 when the record does not say.
        ("stored", "<i8"),
        ("source", "<u2"),
        # Low bits of the number of the source's life.
        ("life", "<u2"),
        # 1 for a clear or restart, 0 for an eviction.
        ("cleared", "u1"),
        # 1 if the source received KV when the block had come.
        ("received", "u1"),
    ],
    align=True,
)
"""A row per loss remembered, in a ring in the order of the log: loss n is in row n modulo the capacity."""


_Columns = TypeVar("_Columns", bound=tuple[Any, ...])


def mapped(columns: _Columns, change: Callable[[Any], Any]) -> _Columns:
    """Return the columns of a table, each one changed."""
    return type(columns)(*map(change, columns))


def doubled(column: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return a column of twice the length; what is new is zero."""
    return np.concatenate((column, np.zeros_like(column)))


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
def find_block(blocks: Blocks, key: np.uint64) -> int:
    """Return the slot of a block, or -1 - (the free slot where it belongs)."""
    mask = len(blocks) - 1
    at = home_of_block(key, mask)
    while blocks[at].key != np.uint64(0):
        if blocks[at].key == key:
            return at
        at = (at + 1) & mask
    return -1 - at


@compiled
def find_pair(pairs: Pairs, key: np.uint64, source: int) -> int:
    """Return the slot of a pair, or -1 - (the free slot where it belongs)."""
    mask = len(pairs) - 1
    at = home_of_pair(key, source, mask)
    while pairs[at].key != np.uint64(0):
        if pairs[at].key == key and pairs[at].source == source:
            return at
        at = (at + 1) & mask
    return -1 - at


@compiled
def free_block(blocks: Blocks, hole: int) -> None:
    """Free a slot; displaced slots behind it move up, so that searches find no gap (Knuth 6.4 R)."""
    mask = len(blocks) - 1
    at = hole
    while True:
        at = (at + 1) & mask
        key = blocks[at].key
        if key == np.uint64(0):
            break
        home = home_of_block(key, mask)
        if ((at - home) & mask) >= ((at - hole) & mask):
            blocks[hole] = blocks[at]
            hole = at
    blocks[hole].key = np.uint64(0)


@compiled
def free_pair(pairs: Pairs, hole: int) -> None:
    """Free the slot of a pair in the same way."""
    mask = len(pairs) - 1
    at = hole
    while True:
        at = (at + 1) & mask
        key = pairs[at].key
        if key == np.uint64(0):
            break
        home = home_of_pair(key, pairs[at].source, mask)
        if ((at - home) & mask) >= ((at - hole) & mask):
            pairs[hole] = pairs[at]
            hole = at
    pairs[hole].key = np.uint64(0)


@compiled_nogil
def copy_blocks(old: Blocks, new: Blocks) -> None:
    """Put every block of one table into another, which is empty and large enough."""
    for slot in range(len(old)):
        key = old[slot].key
        if key != np.uint64(0):
            new[-1 - find_block(new, key)] = old[slot]


@compiled_nogil
def copy_pairs(old: Pairs, new: Pairs) -> None:
    """Put every pair of one table into another, which is empty and large enough."""
    for slot in range(len(old)):
        key = old[slot].key
        if key != np.uint64(0):
            new[-1 - find_pair(new, key, old[slot].source)] = old[slot]
