"""Flat tables of the fleet agent: blocks, who holds or lost them, and the losses in order.

They are numpy arrays, so that a compiled loop can walk them and a checkpoint can copy them. A slot with a key
of zero is free. Capacities are powers of two.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt

from connectors.process import hash_table
from connectors.process.compiled import compiled, compiled_nogil, inlined
from connectors.process.template import over

U64 = npt.NDArray[np.uint64]
U32 = npt.NDArray[np.uint32]
U16 = npt.NDArray[np.uint16]
U8 = npt.NDArray[np.uint8]
Bools = npt.NDArray[np.bool_]
I64 = npt.NDArray[np.int64]
F64 = npt.NDArray[np.float64]

FETCHED_AHEAD: Final = 32
"""How many changes or rows ahead slots are fetched into the processor's cache."""
SMALLEST: Final = 1024
LOAD: Final = 0.75
"""Greatest load factor of a table."""
SPARSE: Final = 0.1
"""Load factor below which a table is rebuilt smaller."""

HAS_LOSS: Final = 0x8000
"""In `Pairs.media`: the source lost the block from its GPU, `position` says which loss."""
RECEIVED: Final = 0x4000
"""In `Pairs.media`: the source received KV when the block came to any medium; kept while it holds one."""
MEDIA_BITS: Final = 14
MEDIA: Final = (1 << MEDIA_BITS) - 1
"""Bits of media."""
STORE_ONLY_BIT: Final = 8
"""Media whose removals are not announced have bits from here on."""
ANNOUNCED: Final = 0x00FF
"""Bits of the media whose removals are announced."""


# Structured arrays: what belongs together is in one line of the processor's cache.
Blocks: TypeAlias = npt.NDArray[Any]
Pairs: TypeAlias = npt.NDArray[Any]
Losses: TypeAlias = npt.NDArray[Any]
Keys: TypeAlias = npt.NDArray[Any]

BLOCK: Final = np.dtype(
    [
        ("key", "<u8"),
        # Event time of the last remembered eviction, by any source.
        ("evicted_at", "<f8"),
        # Tokens per block.
        ("size", "<u4"),
        # Sources that hold it on the medium (GPU where the key is the block's own).
        ("owners", "<u2"),
        # Sources that hold it on a medium whose removals are announced: only these certainly have it still.
        ("holders", "<u2"),
        # Remembered losses from a GPU: evictions, and those by a clear or a restart.
        ("evicted", "<u2"),
        ("cleared", "<u2"),
        # Number of the hash domain, group and LoRA of its chain, how deep in the chain it is, and the chain's
        # first block: 0 where that is not known, and in entries of lower media.
        ("lineage", "<u2"),
        ("depth", "<u2"),
        ("root", "<u8"),
        # Of the owners, the holders and the evictions, those of sources that received KV when the block came:
        # they are of no use to sources that do not receive (docs/figures.md, Transfers).
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
        # Low bits of the number of the loss; valid only with HAS_LOSS.
        ("position", "<u4"),
        ("source", "<u2"),
        # One bit a medium, RECEIVED and HAS_LOSS.
        ("media", "<u2"),
    ],
    align=True,
)
"""A row per block and source that holds it, or whose loss of it is remembered."""
LOSS: Final = np.dtype(
    [
        # Of the block.
        ("key", "<u8"),
        ("time", "<f8"),
        # Tokens stored in that pool before; -1 when the record does not say.
        ("stored", "<i8"),
        ("source", "<u2"),
        # Low bits of the number of the source's engine session.
        ("life", "<u2"),
        # 1 for a clear or restart, 0 for an eviction.
        ("cleared", "u1"),
        # 1 if the source received KV when the block came.
        ("received", "u1"),
    ],
    align=True,
)
"""A row per loss remembered, in a ring in the order of the log: loss n is in row n modulo the capacity."""

KEY: Final = np.dtype([("key", "<u8")])
"""A row per block, for tables that only record which blocks there are."""

_Columns = TypeVar("_Columns", bound=tuple[Any, ...])


def mapped(columns: _Columns, change: Callable[[Any], Any]) -> _Columns:
    """Return the table with `change` applied to each of its columns."""
    return type(columns)(*map(change, columns))


def doubled(column: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return a column of twice the length; the new half is zero."""
    return np.concatenate((column, np.zeros_like(column)))


def capacity_for(entries: int) -> int:
    """Return the smallest capacity, from SMALLEST on, of a table with so many entries at up to LOAD."""
    capacity = SMALLEST
    while capacity * LOAD < entries:
        capacity *= 2
    return capacity


@inlined
def home_of_block(blocks: Any, key: np.uint64, where: None = None) -> int:
    """Return where the search for a block begins; the key's high bits, as its low ones decide on sampling."""
    home: int = np.int64((key >> np.uint64(24)) & np.uint64(len(blocks) - 1))
    return home


@inlined
def home_of_pair(pairs: Pairs, pair: tuple[np.uint64, int], where: None = None) -> int:
    """Return where the search for a pair begins."""
    key, source = pair
    mixed = (key ^ (np.uint64(source + 1) * np.uint64(0x9E3779B97F4A7C15))) * np.uint64(0xD6E8FEB86659FD93)
    home: int = np.int64((mixed >> np.uint64(28)) & np.uint64(len(pairs) - 1))
    return home


@inlined
def _key_of(block: Any) -> np.uint64:
    key: np.uint64 = block.key
    return key


@inlined
def _pair_of(pair: Any) -> tuple[np.uint64, int]:
    return pair.key, np.int64(pair.source)


_OF_BLOCKS = {"MARK": "key", "home": home_of_block, "key_of": _key_of}
_OF_PAIRS = {"MARK": "key", "home": home_of_pair, "key_of": _pair_of}
find_block = compiled(over(hash_table.look_up, "find_block", _OF_BLOCKS))
"""`find_block(blocks, key)` returns the slot of a block, or -1 - (the free slot where it belongs)."""
find_pair = compiled(over(hash_table.look_up, "find_pair", _OF_PAIRS))
"""`find_pair(pairs, (key, source))` does the same with a pair."""
free_block = compiled(over(hash_table.free, "free_block", _OF_BLOCKS))
"""`free_block(blocks, slot)` frees a slot; others may move up into it."""
free_pair = compiled(over(hash_table.free, "free_pair", _OF_PAIRS))
"""`free_pair(pairs, slot)` does the same with pairs."""
copy_blocks = compiled_nogil(over(hash_table.put_all, "copy_blocks", _OF_BLOCKS))
"""`copy_blocks(old, new)` puts every block of one table into another, which is empty and large enough."""
copy_pairs = compiled_nogil(over(hash_table.put_all, "copy_pairs", _OF_PAIRS))
"""`copy_pairs(old, new)` does the same with pairs."""
