"""The copies of a pool in the table of the index."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from pipeline.index.holdings.holdings import Holdings
from pipeline.index.holdings.words import COPIES_MASK, SIZE_MASK, SIZE_SHIFT
from pipeline.index.pools.births import Births
from pipeline.index.pools.content_pool import ContentPool
from pipeline.index.pools.tiers import doubts_of, tier_of, window_of
from pipeline.reading.columns import Events, Hashes
from pipeline.residency.changes import CHANGE, ChangeRows
from pipeline.residency.counting.block_entries import ENTRY, BlockColumns, Entries
from pipeline.residency.counting.copies import Several, Sizes
from pipeline.residency.counting.count_copies import NEEDS_SIZES, REMOVED, Rules, Tally
from pipeline.residency.counting.shared import Shared
from schemas.pool_checkpoints import PoolHead


class IndexedCopies:
    """`Copies` without times, chains and changes, which no answer needs.

    What each method does stands there (residency/counting/copies.py).
    """

    def __init__(
        self, head: PoolHead, shared: Shared, holdings: Holdings, source: int, by_content: Callable[[], int]
    ) -> None:
        """`source`: its number in the table; `by_content` returns its number for blocks by content hash."""
        self._head = head
        self._shared = shared
        self._holdings = holdings
        self._by_content = by_content
        self._contents: ContentPool | None = None
        self._births = Births()
        self._number = holdings.new_pool(source, tier=tier_of(head.medium), group=head.group_idx)
        self._described: tuple[tuple[int, ...], int, int] | None = None
        self._describe()

    def _describe(self) -> None:
        """Copy block sizes, window and doubts from the head to the table, if they changed."""
        head = self._head
        described = tuple(head.block_sizes), window_of(head), doubts_of(head)
        if described != self._described:
            self._described = described
            self._holdings.describe(self._number, head.block_sizes, described[1], doubts=described[2])
            if self._contents is not None:
                self._contents.announced()

    @property
    def keeps_contents(self) -> bool:
        return self._contents is not None

    @property
    def blocks(self) -> int:
        return self._holdings.held(self._number)

    def _keep_contents(self) -> ContentPool:
        if self._contents is None:
            number = self._by_content()
            self._contents = ContentPool(self._head, self.live(), self._shared, self._holdings, number)
        return self._contents

    def count(self, events: Events, sizes: Sizes, rules: Rules, tally: Tally, several: Several) -> ChangeRows:
        head = self._head
        self._describe()
        self._births.stored(head, events)
        if len(events.links):
            self._keep_contents()
        while self._holdings.count(self._number, events, sizes, rules, tally) == NEEDS_SIZES:
            several(events, tally)
        if self._contents is not None:
            reached = tally.progress[0]
            done, _ = events.cut(int(reached["event"]), int(reached["operation"]))
            self._contents.count(done)
        (removed,) = tally.counts[:, REMOVED].nonzero()
        self._births.removed(head.block_sizes[code] for code in removed)
        return np.empty(0, CHANGE)

    def add(self, block: int, copies: int, *, several_sizes: bool) -> None:
        self._holdings.add(self._number, block, copies, several_sizes=several_sizes)

    def live(self) -> Entries:
        """Return the entries of all resident blocks; births only where they matter, no roots."""
        hashes, words = self._holdings.blocks_of(self._number)
        entries: Entries = np.zeros(len(hashes), ENTRY)
        entries["hash"] = hashes
        entries["birth"] = self._births.of(hashes)
        entries["copies"] = words & COPIES_MASK
        entries["size_code"] = (words >> SIZE_SHIFT) & SIZE_MASK
        return entries

    def contents_of(self, hashes: Hashes) -> Hashes:
        return np.zeros_like(hashes) if self._contents is None else self._contents.contents_of(hashes)

    def make_room(self, blocks: int) -> None:
        self._holdings.make_room(blocks)

    def put(self, columns: BlockColumns) -> None:
        if columns.contents.any():
            self._keep_contents()
        if self._contents is not None:
            self._contents.put(columns)
        self._holdings.put(self._number, columns)
        self._births.put(self._head, columns)

    def clear(self) -> tuple[Entries, Hashes]:
        self._number = self._holdings.renewed(self._number)
        self._births.cleared()
        if self._contents is not None:
            self._contents.clear()
        return np.empty(0, ENTRY), np.empty(0, np.uint64)

    def give_up(self) -> None:
        self._holdings.retire(self._number)
        if self._contents is not None:
            self._contents.give_up()
