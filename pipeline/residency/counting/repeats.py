"""Blocks that were announced again: perhaps copies, which only their removals can show.

A store that seems to repeat what is resident is not counted, but remembered block by block. If a block then
leaves more often than it was counted, the engine does make copies: all that were announced count from then
on.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from connectors.process.compiled import borrowed, compiled
from pipeline.reading.columns import Events, Hashes
from pipeline.residency.changes import CHANGE, ChangeRows
from pipeline.residency.counting.block_entries import (
    MAX_DEPTH,
    BlockColumns,
    Entries,
    fetch_slots,
    find_entry,
)
from pipeline.residency.counting.block_table import BlockTable
from pipeline.residency.counting.content_chain import UNKNOWN, follow
from pipeline.residency.counting.copies import Sizes
from pipeline.residency.counting.count_copies import FETCHED_AHEAD, code_of
from pipeline.residency.counting.shared import Shared
from schemas.pool_checkpoints import PoolHead
from schemas.reasons import GaveUpRepeats
from schemas.residency import RETURNED

IN_SEVERAL_SIZES: Final = -1
"""Instead of the number of blocks: one of them came in several sizes."""


class Counted(NamedTuple):
    """What changes in a pool if the blocks that were announced again count as copies."""

    back: BlockColumns
    """Blocks that seemed to have left."""
    grown: BlockColumns
    """Resident blocks of which there are more copies."""
    came: Entries
    """The copies that these blocks gain."""

    def came_of(self, code: int) -> int:
        """Return how many copies of a size are gained."""
        return int(self.came["copies"][self.came["size_code"] == code].sum())


class Repeats:
    """How often the blocks of a pool were announced again since it was cleared.

    If the head says that something was announced again but no block is here, it is no longer known how often,
    until the next clear.
    """

    def __init__(self, head: PoolHead, shared: Shared) -> None:
        self._head = head
        self._shared = shared
        self.table = BlockTable(spread=shared.spread)
        """For each block, its copies beyond those that count, and when the first of them was announced."""

    def __bool__(self) -> bool:
        return self.table.blocks > 0

    def note(self, stores: Events, sizes: Sizes, *, chained: bool) -> None:
        """Remember stores that start chains and seemed to repeat others; `sizes` by code."""
        head, table = self._head, self.table
        known_from_start = bool(self) or not head.repeats
        head.repeats = True
        if not known_from_start:
            return
        if table.blocks + len(stores.hashes) > table.room:
            table.make_room(table.blocks + len(stores.hashes))
        if len(stores.links):
            table.keep_contents()
        blocks = count_repeats(
            table.entries, table.contents, table.spread, table.blocks, sizes, chained, stores
        )
        if blocks == IN_SEVERAL_SIZES:
            self._give_up("several_sizes")
        elif blocks > self._shared.most_repeats:
            self._give_up("too_many")
        else:
            table.blocks = blocks

    def _give_up(self, reason: GaveUpRepeats) -> None:
        self._shared.gave_up_repeats[reason] += 1
        self.table = BlockTable(spread=self._shared.spread)

    def forget(self) -> None:
        """Forget all that is remembered."""
        if self:
            self.table = BlockTable(spread=self._shared.spread)

    def counted(self, block: int, held: Entries, contents_of: Callable[[Hashes], Hashes]) -> Counted | None:
        """Return what changes in the pool if all of this counts, given the entries that it `held` so far.

        None if that does not explain why `block` left, which is not among these, or if one of them was
        announced again in another size. `contents_of` gives their content hashes.
        """
        again = self.table.live()
        if np.uint64(block) not in again["hash"]:
            return None
        held = held[np.isin(held["hash"], again["hash"])]
        held, again = held[np.argsort(held["hash"])], again[np.argsort(again["hash"])]
        alike = np.isin(again["hash"], held["hash"])
        if (held["size_code"] != again["size_code"][alike]).any():
            return None
        held["copies"] += again["copies"][alike]
        # A block that left and came again since was there all the time.
        held["birth"] = np.minimum(held["birth"], again["birth"][alike])
        return Counted(_columns(again[~alike], self.table.contents_of), _columns(held, contents_of), again)


def back_changes(back: BlockColumns, sizes: npt.NDArray[np.uint32], at: float, stored: int) -> ChangeRows:
    """Return the changes for blocks that turn out to be resident, at event time `at`.

    `sizes`: of each block; `stored`: tokens stored before.
    """
    rows: ChangeRows = np.zeros(len(back.hashes), CHANGE)
    rows["by_content"] = back.contents != UNKNOWN
    rows["hash"] = np.where(rows["by_content"], back.contents, back.hashes)
    rows["kind"], rows["time"], rows["stored"] = RETURNED, at, stored
    rows["block_size"], rows["root"], rows["depth"] = sizes, back.roots, back.depths
    return rows


def _columns(entries: Entries, contents_of: Callable[[Hashes], Hashes]) -> BlockColumns:
    names = ("hash", "copies", "birth", "size_code", "root", "depth")
    hashes, copies, births, codes, roots, depths = (np.ascontiguousarray(entries[name]) for name in names)
    return BlockColumns(hashes, copies, births, codes, roots, depths, contents_of(hashes))


@compiled
def count_repeats(
    entries: Any, contents: Hashes, spread: np.uint64, live: int, sizes: Sizes, chained: bool, stores: Events
) -> int:
    """Count a copy of each block; `entries` has room. Return how many blocks there are then.

    Returns IN_SEVERAL_SIZES where one of them came in another size before.
    """
    contents = borrowed(contents)
    entries, stores = borrowed(entries), borrowed(stores)
    rows, hashes, links = stores.rows, stores.hashes, stores.links
    linked = chained and len(links) > 0
    end = fetched = 0
    for event in range(len(rows)):
        row = rows[event]
        start, end = end, end + row.hashes
        code = code_of(row.block_size, sizes)
        root, content, known = np.uint64(0), UNKNOWN, linked
        if chained and row.hashes > 0:
            root = hashes[start]
            if linked and links[start] != UNKNOWN:
                root = follow(UNKNOWN, links[start])
        for at in range(start, end):
            while fetched < min(at + FETCHED_AHEAD, len(hashes)):
                fetch_slots(entries, spread, hashes[fetched])
                fetched += 1
            known = known and links[at] != UNKNOWN
            content = follow(content, links[at]) if known else UNKNOWN
            slot = find_entry(entries, hashes[at], spread)
            entry = entries[slot]
            if entry.copies == 0:
                live += 1
                entry.hash = hashes[at]
                entry.birth = row.time
                entry.size_code = code
                entry.several_sizes = 0
                entry.root = root
                entry.depth = min(at - start + 1, MAX_DEPTH) if chained else 0
                if len(contents) > 0:
                    contents[slot] = content
            elif entry.size_code != code:
                return IN_SEVERAL_SIZES
            entry.copies += 1
    return live
