"""Entries of resident blocks in a flat hash table, and compiled code that finds, frees and sets them.

A slot without copies is free. Where an entry lies depends on a secret of its source, so nobody can choose
hashes that collide.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from connectors.process import hash_table
from connectors.process.compiled import compiled, fetch_ahead, inlined
from connectors.process.template import over
from pipeline.reading.columns import Hashes

Entries = npt.NDArray[np.void]

ENTRY: Final = np.dtype(
    [
        ("hash", np.uint64),
        ("birth", np.float64),  # event time of the first copy
        ("root", np.uint64),  # first block of its chain; 0: not known
        ("copies", np.int32),  # 0: the slot is free
        ("size_code", np.uint16),  # of the first copy's block size
        ("depth", np.uint16),  # blocks of the chain up to and including this one, MAX_DEPTH at most
        ("several_sizes", np.uint8),  # 1: copies of other sizes than the first one's are there, too
    ]
)
MAX_DEPTH: Final = 0xFFFF
"""Blocks deeper in their chains are recorded with this depth."""

_FETCHED = 3
_HALF = np.uint64(32)


class BlockColumns(NamedTuple):
    """n entries as a checkpoint has them, side by side."""

    hashes: Hashes
    copies: npt.NDArray[np.int32]
    """0: not resident."""
    births: npt.NDArray[np.float64]
    size_codes: npt.NDArray[np.uint16]
    roots: Hashes
    depths: npt.NDArray[np.uint16]
    contents: Hashes
    """Content hashes; 0: not known."""


@inlined
def _home(entries: Any, block: np.uint64, spread: np.uint64) -> int:
    slot: int = np.intp((((block * spread) >> _HALF) * np.uint64(len(entries))) >> _HALF)
    return slot


@inlined
def _hash_of(entry: Any) -> np.uint64:
    block: np.uint64 = entry.hash
    return block


@inlined
def _home_beside(entries: Any, block: np.uint64, where: tuple[np.uint64, Hashes]) -> int:
    return _home(entries, block, where[0])


@inlined
def _content_moved(into: int, slot: int, where: tuple[np.uint64, Hashes]) -> None:
    if len(where[1]) > 0:
        where[1][into] = where[1][slot]


_PARTS = {"MARK": "copies", "home": _home, "key_of": _hash_of}
_BESIDE = {"MARK": "copies", "home": _home_beside, "key_of": _hash_of, "moved": _content_moved}
find_entry = compiled(over(hash_table.find, "find_entry", _PARTS))
"""`find_entry(entries, block, spread)` returns the slot of a block, or the free one where it would come."""
remove = compiled(over(hash_table.free, "remove", _BESIDE))
"""`remove(entries, slot, (spread, contents))` frees a slot; entries behind it move up."""


@compiled
def fetch_slots(entries: Any, spread: np.uint64, block: np.uint64) -> None:
    """Prefetch into the cache the slots where a block is, or would come."""
    slot = _home(entries, block, spread)
    fetch_ahead(entries, slot)
    fetch_ahead(entries, slot + _FETCHED)


@compiled
def find_contents(entries: Any, contents: Hashes, spread: np.uint64, hashes: Hashes, found: Hashes) -> None:
    """Write the content hashes of resident blocks to `found`, which has zeros."""
    for at in range(len(hashes)):
        slot = find_entry(entries, hashes[at], spread)
        if entries[slot].copies != 0:
            found[at] = contents[slot]


@compiled
def move_entries(
    source: Any, contents: Hashes, target: Any, target_contents: Hashes, spread: np.uint64
) -> None:
    """Move all entries into an empty table."""
    for slot in range(len(source)):
        if source[slot].copies != 0:
            into = find_entry(target, source[slot].hash, spread)
            target[into] = source[slot]
            if len(contents) > 0:
                target_contents[into] = contents[slot]


@compiled
def put_entries(entries: Any, contents: Hashes, spread: np.uint64, live: int, columns: BlockColumns) -> int:
    """Set entries, or remove those without copies; `entries` has room. Return how many there are then."""
    for at in range(len(columns.hashes)):
        slot = find_entry(entries, columns.hashes[at], spread)
        entry = entries[slot]
        known = entry.copies != 0
        if columns.copies[at] <= 0:
            if known:
                remove(entries, slot, (spread, contents))
                live -= 1
            continue
        if not known:
            live += 1
        entry.hash = columns.hashes[at]
        entry.birth = columns.births[at]
        entry.copies = columns.copies[at]
        entry.size_code = columns.size_codes[at]
        entry.root = columns.roots[at]
        entry.depth = columns.depths[at]
        entry.several_sizes = 0
        if len(contents) > 0:
            contents[slot] = columns.contents[at]
    return live
