"""A pool of one source whose copies the shared table counts."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from pipeline.index.holdings.holdings import Holdings
from pipeline.index.holdings.words import COPIES_MASK, SEVERAL_SIZES, SIZE_MASK, SIZE_SHIFT
from pipeline.index.pools.births import Births
from pipeline.index.pools.content_pool import ContentPool
from pipeline.index.pools.tiers import doubts_of, tier_of, window_of
from pipeline.reading.columns import REMOVAL, Hashes
from pipeline.residency.counting.block_table import ENTRY, BlockColumns, Entries
from pipeline.residency.counting.count_copies import FINISHED, REMOVED, STORED, Tally, no_tally
from pipeline.residency.counting.pool import Pool
from pipeline.residency.counting.shared import Shared
from schemas.checkpoints import PoolHead

_COPIES, _SEVERAL = int(COPIES_MASK), int(SEVERAL_SIZES)


class IndexedPool(Pool):
    """Follows the rules of a `Pool`; keeps no times, chains or changes, which no answer needs."""

    def __init__(
        self, head: PoolHead, shared: Shared, holdings: Holdings, source: int, by_content: Callable[[], int]
    ) -> None:
        """`source`: its number in the table; `by_content` gives that under which it is known by content."""
        super().__init__(head, shared)
        self._holdings = holdings
        self._by_content = by_content
        self._contents: ContentPool | None = None
        self._births = Births()
        self.number = holdings.new_pool(source, tier=tier_of(head.medium), group=head.group_idx)
        self._describe()

    def _describe(self) -> None:
        head = self.head
        self._holdings.describe(self.number, head.block_sizes, window_of(head), doubts=doubts_of(head))
        if self._contents is not None:
            self._contents.announced()

    @property
    def keeps_contents(self) -> bool:
        return self._contents is not None

    def contents_of(self, hashes: Hashes) -> Hashes:
        self.settle()
        return np.zeros_like(hashes) if self._contents is None else self._contents.contents_of(hashes)

    def _keep_contents(self) -> None:
        if self._contents is None:
            number = self._by_content()
            self._contents = ContentPool(self.head, self.live(), self._shared, self._holdings, number)

    def announce(self, block_size: int, *, several: bool) -> None:
        super().announce(block_size, several=several)
        self._describe()

    def forget_early(self) -> None:
        super().forget_early()
        self._describe()

    def settle(self) -> None:
        if not self._collected:
            return
        events = self._collected.take()
        head = self.head
        self._births.stored(head, events)
        how = {"one_copy": self.one_copy, "all_known": self._shared.all_known(head.medium)}
        if len(events.links):
            self._keep_contents()
        if self._contents is not None:
            self._contents.count(events)
        tally = no_tally(max(1, len(head.block_sizes)))
        reached = tally.progress[0]
        reached["stored_tokens"] = head.stored_tokens
        while self._holdings.count(self.number, head.block_sizes, events, tally, **how) != FINISHED:
            size = int(events.rows["block_size"][reached["event"]])
            self._count_of_several_sizes(int(events.hashes[reached["operation"]]), size, tally)
        head.stored_tokens = int(reached["stored_tokens"])
        self._count(tally)
        self._births.removed(head)

    def _count_of_several_sizes(self, block: int, size: int, tally: Tally) -> None:
        other_sizes = self.head.other_sizes
        reached = tally.progress[0]
        word = self._holdings.word(self.number, block)
        if size == REMOVAL:
            others = other_sizes[block]
            tally.counts[self._codes[others.pop()], REMOVED] += 1
            word -= 1
            self.other_copies -= 1
            if not others:
                del other_sizes[block]
        else:
            other_sizes.setdefault(block, []).append(size)
            tally.counts[self._codes[size], STORED] += 1
            reached["stored_tokens"] += size
            word += (word & _COPIES) != _COPIES
            self.other_copies += 1
        word = word | _SEVERAL if block in other_sizes else word & ~_SEVERAL
        self._holdings.set_word(self.number, block, word)
        reached["operation"] += 1

    def clear(self, at: float) -> None:
        self.settle()
        head = self.head
        self.number = self._holdings.renewed(self.number)
        head.flow.cleared_blocks += sum(head.entries)
        head.entries = [0] * len(head.entries)
        head.blocks = [0] * len(head.blocks)
        head.other_sizes.clear()
        self.other_copies = 0
        self._births.cleared()
        if self._contents is not None:
            self._contents.clear()

    def given_up(self) -> None:
        self._holdings.retire(self.number)
        if self._contents is not None:
            self._contents.given_up()

    def make_room(self, blocks: int) -> None:
        self._holdings.make_room(blocks)

    def put(self, columns: BlockColumns) -> None:
        if columns.contents.any():
            self._keep_contents()
        if self._contents is not None:
            self._contents.put(columns)
        self._holdings.put(self.number, columns)
        self._births.put(self.head, columns)
        for block in self.head.other_sizes:
            word = self._holdings.word(self.number, block)
            if word:
                self._holdings.set_word(self.number, block, word | _SEVERAL)

    def live(self) -> Entries:
        """Return the entries of all resident blocks; births only where they matter, no roots."""
        hashes, words = self._holdings.blocks_of(self.number)
        entries: Entries = np.zeros(len(hashes), ENTRY)
        entries["hash"] = hashes
        entries["birth"] = self._births.of(hashes)
        entries["copies"] = words & COPIES_MASK
        entries["size_code"] = (words >> SIZE_SHIFT) & SIZE_MASK
        return entries

    @property
    def held(self) -> int:
        """Return how many blocks are resident."""
        return self._holdings.held(self.number)
