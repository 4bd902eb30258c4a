"""The blocks of a pool in a hash table of its own."""

from __future__ import annotations

import secrets
from typing import Any

import numpy as np

from pipeline.reading.columns import Events, Hashes
from pipeline.residency.changes import ChangeRows
from pipeline.residency.counting.block_counting import Blocks, Where, count_copies, room_for
from pipeline.residency.counting.block_entries import (
    ENTRY,
    BlockColumns,
    Entries,
    find_contents,
    find_entry,
    move_entries,
    put_entries,
)
from pipeline.residency.counting.collected import without_the_rest
from pipeline.residency.counting.copies import Several, Sizes
from pipeline.residency.counting.count_copies import (
    FINISHED,
    LEFT_UNKNOWN,
    NEEDS_ROOM,
    NEEDS_SIZES,
    Rules,
    Tally,
)
from pipeline.residency.counting.shared import Shared
from schemas.pool_checkpoints import PoolHead

_LEAST_SLOTS = 16
_LOAD_LIMIT = 0.75
_LOAD_AFTER_REBUILD = 0.5
_LOAD_OF_TOO_LARGE = 0.125


class BlockTable:
    """`Copies` with all that rows and checkpoints need; at most three quarters of its slots are taken."""

    def __init__(self, blocks: int = 0, *, spread: int) -> None:
        """`blocks`: how many have room at least. `spread`: from `new_spread`."""
        self.entries = _vacant(blocks)
        self.contents: Hashes = np.empty(0, np.uint64)
        """Content hash of each slot's block, 0 where it is not known; empty until `keep_contents`."""
        self.spread = np.uint64(spread)
        """Factor that spreads hashes over the slots (multiply-shift hashing). No figure depends on it."""
        self.blocks = 0

    @property
    def room(self) -> int:
        """How many blocks fit before the table must grow."""
        return int(len(self.entries) * _LOAD_LIMIT)

    @property
    def keeps_contents(self) -> bool:
        return len(self.contents) > 0

    def keep_contents(self) -> None:
        """Keep content hashes from now on."""
        if not len(self.contents):
            self.contents = np.zeros(len(self.entries), np.uint64)

    def contents_of(self, hashes: Hashes) -> Hashes:
        found = np.zeros(len(hashes), np.uint64)
        if len(self.contents):
            # A column of entries is strided: the first one would make numba compile the loop once more.
            hashes = np.ascontiguousarray(hashes)
            find_contents(self.entries, self.contents, self.spread, hashes, found)
        return found

    def live(self) -> Entries:
        entries: Entries = self.entries[self.entries["copies"] > 0]
        return entries

    def entry(self, block: int) -> Any:
        """Return the entry of a block for reading and writing, one without copies if it is not resident.

        Holds until the table changes.
        """
        return self.entries[find_entry(self.entries, np.uint64(block), self.spread)]

    def make_room(self, blocks: int) -> None:
        self._rebuild(max(blocks, self.blocks))

    def count(self, events: Events, sizes: Sizes, rules: Rules, tally: Tally, several: Several) -> ChangeRows:
        if len(events.links):
            self.keep_contents()
        found = room_for(len(events.hashes))
        reached = tally.progress[0]
        reached["live"] = self.blocks
        outcome = NEEDS_ROOM
        while outcome not in (FINISHED, LEFT_UNKNOWN):
            blocks = Blocks(self.entries, self.contents, found)
            outcome = count_copies(blocks, Where(self.spread, self.room), rules, sizes, events, tally)
            self.blocks = int(reached["live"])
            if outcome == NEEDS_ROOM:
                self.make_room(self.blocks + 1)
            elif outcome == NEEDS_SIZES:
                several(events, tally)
        self.shrink_if_sparse()
        return without_the_rest(found[: reached["changes"]])

    def add(self, block: int, copies: int, *, several_sizes: bool) -> None:
        entry = self.entry(block)
        entry["copies"] += copies
        entry["several_sizes"] = several_sizes

    def clear(self) -> tuple[Entries, Hashes]:
        live = self.live()
        contents, kept = self.contents_of(live["hash"]), self.keeps_contents
        self.entries, self.contents = _vacant(len(live)), self.contents[:0]  # as many are likely to come
        self.blocks = 0
        if kept:
            self.keep_contents()
        return live, contents

    def give_up(self) -> None:
        self.clear()

    def shrink_if_sparse(self) -> None:
        """Give memory back when most blocks have left."""
        slots = len(self.entries)
        if slots > _LEAST_SLOTS and self.blocks < slots * _LOAD_OF_TOO_LARGE:
            self._rebuild(self.blocks)

    def put(self, columns: BlockColumns) -> None:
        """Set entries. Raises ValueError for columns of different lengths: compiled code does not check."""
        count = len(columns.hashes)
        if any(len(column) != count for column in columns):
            raise ValueError("columns of different lengths")
        if self.blocks + count > self.room:
            self.make_room(self.blocks + count)
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


def in_table(head: PoolHead, shared: Shared) -> BlockTable:
    """Return what counts the copies of a pool in a table of its own."""
    return BlockTable(spread=shared.spread)


def new_spread() -> int:
    """Return a secret random factor that spreads hashes of any kind over slots: odd, below 2**63."""
    return secrets.randbits(62) << 1 | 1
