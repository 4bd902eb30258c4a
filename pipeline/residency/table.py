"""Resident blocks in a flat hash table, and the loop that counts their copies, compiled.

Linear probing at a load of at most three quarters; a slot without copies is free. An entry that leaves
draws those behind it back towards their own slots (Knuth 6.4, algorithm R), so nothing is left to mark
where it was.
"""

from __future__ import annotations

import math
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from pipeline.compiled import compiled
from schemas.residency import EVICTED, FILLED

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

PROGRESS: Final = np.dtype(
    [
        ("event", np.int64),
        ("place", np.int64),
        ("live", np.int64),
        ("unsaved", np.int64),
        ("changes", np.int64),
        ("gone", np.int64),
        ("unknown_removed", np.int64),
        ("reannounced", np.int64),
        ("stored_tokens", np.int64),
    ]
)
"""How far `count_copies` came, and what it counted."""

REMOVAL: Final = -1
"""In place of a size code: the blocks of the event left."""

STORED, FIRST, REMOVED, LAST = range(4)
"""Columns of the counts per size code: copies that came, first ones, copies that left, last ones."""

FINISHED, NEEDS_ROOM, NEEDS_SIZES = range(3)
"""Why `count_copies` returned; in the last two cases before the operation at `place`."""

_LEAST_SLOTS = 16
_LOAD_LIMIT = 0.75
_LOAD_AFTER_REBUILD = 0.5
_LOAD_OF_TOO_LARGE = 0.125
_SPREAD = np.uint64(0x9E3779B97F4A7C15)
"""2**64 divided by the golden ratio: spreads hashes of any kind over the slots (Knuth 6.4)."""
_HALF = np.uint64(32)
_HISTOGRAM_BUCKETS = 36


class BlockTable:
    """Entries of resident blocks at their slots."""

    def __init__(self, blocks: int = 0) -> None:
        self.entries = _vacant(blocks)
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
        """Note that a checkpoint has everything."""
        if self.unsaved:
            self.entries["unsaved"] = SAVED
            self.unsaved = 0

    def entry(self, block: int) -> Any:
        """Return the entry of a block for reading and writing, one without copies if it is not resident.

        Holds until the table changes.
        """
        return self.entries[find(self.entries, np.uint64(block))]

    def grow(self, blocks: int) -> None:
        """Make room for as many blocks in all."""
        self._rebuild(max(blocks, self.blocks))

    def shrink_if_sparse(self) -> None:
        """Give memory back when most blocks have left."""
        slots = len(self.entries)
        if slots > _LEAST_SLOTS and self.blocks < slots * _LOAD_OF_TOO_LARGE:
            self._rebuild(self.blocks)

    def put(
        self,
        hashes: Hashes,
        copies: npt.NDArray[np.int32],
        births: npt.NDArray[np.float64],
        codes: npt.NDArray[np.uint16],
        roots: Hashes,
        depths: npt.NDArray[np.uint16],
    ) -> None:
        """Set entries as a checkpoint has them; zero copies removes one."""
        if self.blocks + len(hashes) > self.room:
            self.grow(self.blocks + len(hashes))
        self.blocks = put_entries(self.entries, self.blocks, hashes, copies, births, codes, roots, depths)

    def _rebuild(self, blocks: int) -> None:
        old, self.entries = self.entries, _vacant(blocks)
        move_entries(old, self.entries)


def _vacant(blocks: int) -> Entries:
    return np.zeros(max(_LEAST_SLOTS, int(blocks / _LOAD_AFTER_REBUILD) + 1), ENTRY)


@compiled
def _home(entries: Any, block: np.uint64) -> int:
    slot: int = np.intp((((block * _SPREAD) >> _HALF) * np.uint64(len(entries))) >> _HALF)
    return slot


@compiled
def find(entries: Any, block: np.uint64) -> int:
    """Return the slot of a block, or the free one where it would come."""
    slot = _home(entries, block)
    while entries[slot].copies != 0 and entries[slot].hash != block:
        slot += 1
        if slot == len(entries):
            slot = 0
    return slot


@compiled
def _remove(entries: Any, slot: int) -> None:
    slots = len(entries)
    free = at = slot
    while True:
        at += 1
        if at == slots:
            at = 0
        if entries[at].copies == 0:
            break
        home = _home(entries, entries[at].hash)
        # An entry may not come before its own slot.
        if (at - home) % slots >= (at - free) % slots:
            entries[free] = entries[at]
            free = at
    entries[free].copies = 0


@compiled
def move_entries(source: Any, target: Any) -> None:
    """Put all entries into a table that has none."""
    for slot in range(len(source)):
        if source[slot].copies != 0:
            target[find(target, source[slot].hash)] = source[slot]


@compiled
def put_entries(
    entries: Any,
    live: int,
    hashes: Any,
    copies: Any,
    births: Any,
    codes: Any,
    roots: Any,
    depths: Any,
) -> int:
    """Set entries, or remove those without copies; `entries` has room. Return how many there are then."""
    for place in range(len(hashes)):
        slot = find(entries, hashes[place])
        entry = entries[slot]
        known = entry.copies != 0
        if copies[place] <= 0:
            if known:
                _remove(entries, slot)
                live -= 1
            continue
        if not known:
            live += 1
        entry.hash = hashes[place]
        entry.birth = births[place]
        entry.copies = copies[place]
        entry.size_code = codes[place]
        entry.root = roots[place]
        entry.depth = depths[place]
        entry.unsaved = SAVED
        entry.several_sizes = 0
    return live


@compiled
def _bucket(seconds: float) -> int:
    # As `pipeline.residency.histogram.bucket_of`.
    if not seconds > 0.0:
        return 0
    exponent = math.frexp(seconds)[1] + 10
    return min(max(exponent, 0), _HISTOGRAM_BUCKETS - 1)


@compiled
def _all_resident(entries: Any, hashes: Any, start: int, end: int) -> bool:
    for place in range(start, end):  # noqa: SIM110 - a generator cannot be compiled
        if entries[find(entries, hashes[place])].copies == 0:
            return False
    return True


@compiled
def count_copies(
    entries: Any,
    room: int,
    hashes: Any,
    ends: Any,
    codes: Any,
    times: Any,
    may_repeat: Any,
    parents: Any,
    adapters: Any,
    chained: bool,
    sizes: Any,
    counts: Any,
    lifetimes: Any,
    changed_hashes: Any,
    changed_kinds: Any,
    changed_times: Any,
    changed_codes: Any,
    changed_stored: Any,
    changed_roots: Any,
    changed_depths: Any,
    changed_adapters: Any,
    gone: Any,
    progress: Any,
) -> int:
    """Apply events in order until all are applied, or one operation needs the interpreter.

    Event i has the hashes up to ends[i]; codes[i] is the code of their block size, or REMOVAL; with
    may_repeat[i] it counts only if one of its hashes is absent. A count never falls below zero: removals
    of unknown blocks are normal after joining late. Writes what became and ceased to be resident to
    `changed_*`, with the tokens stored before, and to `gone` which of the last checkpoint's blocks left.

    Where `chained`, the blocks of an event follow each other after the block parents[i], 0 at the start of
    a chain. The root and depth of blocks whose parent is not resident are 0: not known. adapters[i] is the
    code of their LoRA.
    """
    reached = progress[0]
    event, place = reached.event, reached.place
    live, unsaved, changes = reached.live, reached.unsaved, reached.changes
    stored_tokens = reached.stored_tokens
    outcome = FINISHED
    while event < len(ends) and outcome == FINISHED:
        code, at, end = codes[event], times[event], ends[event]
        start = ends[event - 1] if event > 0 else 0
        if place == start and may_repeat[event] and _all_resident(entries, hashes, place, end):
            reached.reannounced += end - place
            place = end
        root, before = np.uint64(0), 0
        if chained and code != REMOVAL and place < end:
            if parents[event] == 0:
                root = hashes[start]
            else:
                parent = entries[find(entries, parents[event])]
                if parent.copies != 0:
                    root, before = parent.root, np.int64(parent.depth)
        while place < end:
            block = hashes[place]
            slot = find(entries, block)
            entry = entries[slot]
            if code != REMOVAL:
                if entry.copies == 0:
                    if live >= room:
                        outcome = NEEDS_ROOM
                        break
                    entry.hash = block
                    entry.birth = at
                    entry.size_code = code
                    entry.unsaved = NEW
                    entry.several_sizes = 0
                    entry.root = root
                    entry.depth = 0 if root == 0 else min(before + place - start + 1, MAX_DEPTH)
                    live += 1
                    unsaved += 1
                    counts[code, FIRST] += 1
                    changed_hashes[changes] = block
                    changed_kinds[changes] = FILLED
                    changed_times[changes] = at
                    changed_codes[changes] = code
                    changed_stored[changes] = stored_tokens
                    changed_roots[changes] = root
                    changed_depths[changes] = entry.depth
                    changed_adapters[changes] = adapters[event]
                    changes += 1
                elif entry.size_code != code:
                    outcome = NEEDS_SIZES
                    break
                elif entry.unsaved == SAVED:
                    entry.unsaved = CHANGED
                    unsaved += 1
                entry.copies += 1
                counts[code, STORED] += 1
                stored_tokens += sizes[code]
            elif entry.copies == 0:
                reached.unknown_removed += 1
            elif entry.several_sizes != 0:
                outcome = NEEDS_SIZES
                break
            else:
                counts[entry.size_code, REMOVED] += 1
                if entry.copies > 1:
                    entry.copies -= 1
                    if entry.unsaved == SAVED:
                        entry.unsaved = CHANGED
                        unsaved += 1
                else:
                    counts[entry.size_code, LAST] += 1
                    lifetimes[_bucket(at - entry.birth)] += 1
                    changed_hashes[changes] = block
                    changed_kinds[changes] = EVICTED
                    changed_times[changes] = at
                    changed_codes[changes] = entry.size_code
                    changed_stored[changes] = stored_tokens
                    changes += 1
                    if entry.unsaved != SAVED:
                        unsaved -= 1
                    if entry.unsaved != NEW:
                        gone[reached.gone] = block
                        reached.gone += 1
                    live -= 1
                    _remove(entries, slot)
            place += 1
        if outcome == FINISHED:
            event += 1
    reached.event, reached.place = event, place
    reached.live, reached.unsaved, reached.changes = live, unsaved, changes
    reached.stored_tokens = stored_tokens
    return outcome
