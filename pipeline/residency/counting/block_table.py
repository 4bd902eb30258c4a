"""Resident blocks in a flat hash table.

Linear probing at a load of at most three quarters; a slot without copies is free. An entry that leaves
draws those behind it back towards their own slots (Knuth 6.4, algorithm R), so searches find
no gap. Where an entry lies follows from a secret of its source, so nobody can choose hashes that meet.
"""

from __future__ import annotations

import secrets
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from connectors.process.compiled import compiled, fetch_ahead
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
"""Blocks deeper in their chains than that are said to be that deep."""
FETCHED_AHEAD: Final = 64
"""Blocks whose slots are on their way into the cache while a loop is at the one before them."""

_FETCHED = 3
_LEAST_SLOTS = 16
_LOAD_LIMIT = 0.75
_LOAD_AFTER_REBUILD = 0.5
_LOAD_OF_TOO_LARGE = 0.125
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


class BlockTable:
    """Entries of resident blocks at their slots."""

    def __init__(self, blocks: int = 0, *, spread: int) -> None:
        """`blocks`: as many have room. `spread`: from `new_spread`."""
        self.entries = _vacant(blocks)
        self.contents: Hashes = np.empty(0, np.uint64)
        """Content hash of each slot's block, 0 where it is not known; empty until `keep_contents`."""
        self.spread = np.uint64(spread)
        """Factor that spreads hashes over the slots (multiply-shift hashing). No figure depends on it."""
        self.blocks = 0

    @property
    def bytes_allocated(self) -> int:
        return int(self.entries.nbytes + self.contents.nbytes)

    @property
    def room(self) -> int:
        """How many blocks fit before the table must grow."""
        return int(len(self.entries) * _LOAD_LIMIT)

    def keep_contents(self) -> None:
        """Keep content hashes from now on."""
        if not len(self.contents):
            self.contents = np.zeros(len(self.entries), np.uint64)

    def contents_of(self, hashes: Hashes) -> Hashes:
        """Return the content hash of each block, 0 where it is not known or the block is not resident."""
        found = np.zeros(len(hashes), np.uint64)
        if len(self.contents):
            # A column of entries is strided, which would be compiled apart, when it comes first.
            hashes = np.ascontiguousarray(hashes)
            find_contents(self.entries, self.contents, self.spread, hashes, found)
        return found

    def live(self) -> Entries:
        """Return a copy of the entries of all resident blocks, in no order of meaning."""
        entries: Entries = self.entries[self.entries["copies"] > 0]
        return entries

    def entry(self, block: int) -> Any:
        """Return the entry of a block for reading and writing, one without copies if it is not resident.

        Holds until the table changes.
        """
        return self.entries[find(self.entries, self.spread, np.uint64(block))]

    def grow(self, blocks: int) -> None:
        """Make room for as many blocks in all."""
        self._rebuild(max(blocks, self.blocks))

    def shrink_if_sparse(self) -> None:
        """Give memory back when most blocks have left."""
        slots = len(self.entries)
        if slots > _LEAST_SLOTS and self.blocks < slots * _LOAD_OF_TOO_LARGE:
            self._rebuild(self.blocks)

    def put(self, columns: BlockColumns) -> None:
        """Set entries as a checkpoint has them; zero copies removes one.

        Raises ValueError for columns of different lengths: compiled code does not look.
        """
        count = len(columns.hashes)
        if any(len(column) != count for column in columns):
            raise ValueError("columns of different lengths")
        if self.blocks + count > self.room:
            self.grow(self.blocks + count)
        if columns.contents.any():
            self.keep_contents()
        self.blocks = put_entries(self.entries, self.contents, self.spread, self.blocks, columns)

    def _rebuild(self, blocks: int) -> None:
        old, self.entries = self.entries, _vacant(blocks)
        contents, self.contents = self.contents, np.empty(0, np.uint64)
        if len(contents):
            self.keep_contents()
        move_entries(old, contents, self.entries, self.contents, self.spread)


def _vacant(blocks: int) -> Entries:
    return np.zeros(max(_LEAST_SLOTS, int(blocks / _LOAD_AFTER_REBUILD) + 1), ENTRY)


def new_spread() -> int:
    """Return a factor that spreads hashes of any kind over places: odd, below 2**63, and nobody knows it."""
    return secrets.randbits(62) << 1 | 1


@compiled
def _home(entries: Any, spread: np.uint64, block: np.uint64) -> int:
    slot: int = np.intp((((block * spread) >> _HALF) * np.uint64(len(entries))) >> _HALF)
    return slot


@compiled
def fetch_slots(entries: Any, spread: np.uint64, block: np.uint64) -> None:
    """Begin to bring the slots into the cache where a block is, or would come."""
    slot = _home(entries, spread, block)
    fetch_ahead(entries, slot)
    fetch_ahead(entries, slot + _FETCHED)


@compiled
def find(entries: Any, spread: np.uint64, block: np.uint64) -> int:
    """Return the slot of a block, or the free one where it would come."""
    slot = _home(entries, spread, block)
    while entries[slot].copies != 0 and entries[slot].hash != block:
        slot += 1
        if slot == len(entries):
            slot = 0
    return slot


@compiled
def find_contents(entries: Any, contents: Hashes, spread: np.uint64, hashes: Hashes, found: Hashes) -> None:
    """Write the content hashes of resident blocks to `found`, which has zeros."""
    for at in range(len(hashes)):
        slot = find(entries, spread, hashes[at])
        if entries[slot].copies != 0:
            found[at] = contents[slot]


@compiled
def remove(entries: Any, contents: Hashes, spread: np.uint64, slot: int) -> None:
    """Free a slot; entries behind it move up."""
    slots = len(entries)
    free = at = slot
    while True:
        at += 1
        if at == slots:
            at = 0
        if entries[at].copies == 0:
            break
        home = _home(entries, spread, entries[at].hash)
        # An entry may not come before its own slot.
        if (at - home) % slots >= (at - free) % slots:
            entries[free] = entries[at]
            if len(contents) > 0:
                contents[free] = contents[at]
            free = at
    entries[free].copies = 0


@compiled
def move_entries(
    source: Any, contents: Hashes, target: Any, target_contents: Hashes, spread: np.uint64
) -> None:
    """Put all entries into a table that has none."""
    for slot in range(len(source)):
        if source[slot].copies != 0:
            into = find(target, spread, source[slot].hash)
            target[into] = source[slot]
            if len(contents) > 0:
                target_contents[into] = contents[slot]


@compiled
def put_entries(entries: Any, contents: Hashes, spread: np.uint64, live: int, columns: BlockColumns) -> int:
    """Set entries, or remove those without copies; `entries` has room. Return how many there are then."""
    for at in range(len(columns.hashes)):
        slot = find(entries, spread, columns.hashes[at])
        entry = entries[slot]
        known = entry.copies != 0
        if columns.copies[at] <= 0:
            if known:
                remove(entries, contents, spread, slot)
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
