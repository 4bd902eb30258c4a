"""Resident blocks in a flat hash table.

Linear probing at a load of at most three quarters; a slot without copies is free. An entry that leaves
draws those behind it back towards their own slots (Knuth 6.4, algorithm R), so searches find
no gap. Where an entry lies follows from a secret of its table, so nobody can choose hashes that meet.
"""

from __future__ import annotations

import secrets
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from connectors.process.compiled import compiled

Hashes = npt.NDArray[np.uint64]
Entries = npt.NDArray[np.void]

ENTRY: Final = np.dtype(
    [
        ("hash", np.uint64),
        ("birth", np.float64),  # event time of the first copy
        ("root", np.uint64),  # first block of its chain; 0: not known
        ("copies", np.int32),  # 0: the slot is free
        ("size_code", np.uint16),  # of the first copy's block size
        ("depth", np.uint16),  # blocks of the chain up to and including this one, MAX_DEPTH at most
        ("unsaved", np.uint8),  # SAVED, CHANGED or NEW
        ("several_sizes", np.uint8),  # 1: copies of other sizes than the first one's are there, too
    ]
)
MAX_DEPTH: Final = 0xFFFF
"""Blocks deeper in their chains than that are said to be that deep."""
SAVED: Final = 0
"""As the last checkpoint has it."""
CHANGED: Final = 1
"""Otherwise than the last checkpoint has it."""
NEW: Final = 2
"""Not in the last checkpoint."""

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


class BlockTable:
    """Entries of resident blocks at their slots."""

    def __init__(self, blocks: int = 0, *, spread: int | None = None) -> None:
        """`blocks`: as many have room. `spread`: an odd number that tests know."""
        self.entries = _vacant(blocks)
        self.spread = np.uint64(secrets.randbits(64) | 1 if spread is None else spread)
        """Factor that spreads hashes over the slots (multiply-shift hashing). No figure depends on it."""
        self.blocks = 0
        self.unsaved = 0
        """Entries that are CHANGED or NEW."""

    @property
    def bytes_allocated(self) -> int:
        return int(self.entries.nbytes)

    @property
    def room(self) -> int:
        """How many blocks fit before the table must grow."""
        return int(len(self.entries) * _LOAD_LIMIT)

    def live(self) -> Entries:
        """Return a copy of the entries of all resident blocks, in no order of meaning."""
        return self._chosen(self.entries["copies"] > 0)

    def changed(self) -> Entries:
        """Return a copy of the entries that differ from the last checkpoint or are not in it."""
        return self._chosen((self.entries["unsaved"] != SAVED) & (self.entries["copies"] > 0))

    def _chosen(self, slots: npt.NDArray[np.bool_]) -> Entries:
        entries: Entries = self.entries[slots]
        return entries

    def saved(self) -> None:
        """Count everything as part of a checkpoint."""
        if self.unsaved:
            self.entries["unsaved"] = SAVED
            self.unsaved = 0

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
        self.blocks = put_entries(self.entries, self.spread, self.blocks, columns)

    def _rebuild(self, blocks: int) -> None:
        old, self.entries = self.entries, _vacant(blocks)
        move_entries(old, self.entries, self.spread)


def _vacant(blocks: int) -> Entries:
    return np.zeros(max(_LEAST_SLOTS, int(blocks / _LOAD_AFTER_REBUILD) + 1), ENTRY)


@compiled
def _home(entries: Any, spread: np.uint64, block: np.uint64) -> int:
    slot: int = np.intp((((block * spread) >> _HALF) * np.uint64(len(entries))) >> _HALF)
    return slot


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
def remove(entries: Any, spread: np.uint64, slot: int) -> None:
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
            free = at
    entries[free].copies = 0


@compiled
def move_entries(source: Any, target: Any, spread: np.uint64) -> None:
    """Put all entries into a table that has none."""
    for slot in range(len(source)):
        if source[slot].copies != 0:
            target[find(target, spread, source[slot].hash)] = source[slot]


@compiled
def put_entries(entries: Any, spread: np.uint64, live: int, columns: BlockColumns) -> int:
    """Set entries, or remove those without copies; `entries` has room. Return how many there are then."""
    for at in range(len(columns.hashes)):
        slot = find(entries, spread, columns.hashes[at])
        entry = entries[slot]
        known = entry.copies != 0
        if columns.copies[at] <= 0:
            if known:
                remove(entries, spread, slot)
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
        entry.unsaved = SAVED
        entry.several_sizes = 0
    return live
