"""The blocks of a pool by content hash: a second pool in the shared table, under another source number.

Removals name blocks by the engine's hashes, so copies are counted by these, as the replica agent does.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from pipeline.index.holdings.holdings import Holdings
from pipeline.index.pools.tiers import doubts_of, tier_of, window_of
from pipeline.reading.columns import EVENT, REMOVAL, Events, Hashes
from pipeline.residency.changes import Changes
from pipeline.residency.counting.block_entries import BlockColumns, Entries
from pipeline.residency.counting.block_table import BlockTable
from pipeline.residency.counting.count_copies import FINISHED, Rules, no_tally
from pipeline.residency.counting.pool import Pool
from pipeline.residency.counting.shared import Shared
from schemas.pool_checkpoints import FlowState, PoolHead
from schemas.residency import FILLED, GENERATED

_BY_CONTENT = Rules(chained=False, one_copy=False, all_known=False, decodes_singly=False)


class ContentPool:
    """Follows, by content hash, another pool, which holds the engine's own hashes."""

    def __init__(
        self, followed: PoolHead, live: Entries, shared: Shared, holdings: Holdings, source: int
    ) -> None:
        """`followed`: the head of that pool; `live`: what it holds, with contents unknown.

        `source`: the number for contents.
        """
        head = PoolHead(followed.medium, followed.group_idx, FlowState(), removes=True)
        self._followed = followed
        self._counted = Pool(head, shared, BlockTable(spread=shared.spread))
        self._holdings = holdings
        self.number = holdings.new_pool(source, tier=tier_of(head.medium), group=head.group_idx)
        self.announced()
        nothing, none = np.zeros(len(live), np.uint64), np.zeros(len(live), np.uint16)
        self._counted.put(
            BlockColumns(
                live["hash"], live["copies"], live["birth"], live["size_code"], nothing, none, nothing
            )
        )

    def announced(self) -> None:
        """Take over that the other pool announced another block size, or more about itself."""
        head = self._followed
        for size in head.block_sizes:
            self._counted.announce(size, several=True)
        self._holdings.describe(self.number, head.block_sizes, window_of(head), doubts=doubts_of(head))

    def contents_of(self, hashes: Hashes) -> Hashes:
        """Return the content hash of each resident block by its own hash; 0 where it is not known."""
        return self._counted.copies.contents_of(hashes)

    def count(self, events: Events) -> None:
        """Follow events that the other pool has counted, except stores that repeated others."""
        counted, repeated = self._counted, events.rows["may_repeat"]
        counted.add(events.only(~repeated), repeatable=False)
        counted.settle()
        counted.head.flow = FlowState()
        for changes in counted.changes:
            self._follow(changes)
        counted.changes.clear()

    def _follow(self, changes: Changes) -> None:
        rows = changes.rows[changes.rows["by_content"]]
        if not len(rows):
            return
        came = (rows["kind"] == FILLED) | (rows["kind"] == GENERATED)
        self._count(rows["hash"], np.where(came, rows["block_size"].astype(np.int64), REMOVAL))

    def _count(self, contents: Hashes, block_sizes: npt.NDArray[np.int64]) -> None:
        """Count one copy more of each content hash, or one less where its size is REMOVAL."""
        stream = np.zeros(len(contents), EVENT)
        stream["hashes"] = 1
        stream["block_size"] = block_sizes
        sizes = np.array(self._counted.head.block_sizes or [0], np.int64)
        hashes = np.ascontiguousarray(contents)
        events, tally = Events(stream, hashes), no_tally(len(sizes))
        while self._holdings.count(self.number, events, sizes, _BY_CONTENT, tally) != FINISHED:
            # Blocks of two sizes with one content hash: a collision that somebody searched for.
            reached = tally.progress[0]
            self._holdings.add(self.number, int(hashes[reached["operation"]]), 1)
            reached["operation"] += 1

    def put(self, columns: BlockColumns) -> None:
        """Set what the pool holds as in a checkpoint; zero copies removes a block.

        A block may arrive and leave several times in these columns: its last entry counts.
        """
        blocks, from_end = np.unique(columns.hashes[::-1], return_index=True)
        last = len(columns.hashes) - 1 - from_end
        before = self.contents_of(blocks)
        self._counted.put(columns)
        after = self.contents_of(blocks)
        gone = before[(before != 0) & (before != after)]
        came = (after != 0) & (before != after)
        sizes = np.array(self._counted.head.block_sizes or [0], np.int64)
        self._count(gone, np.full(len(gone), REMOVAL, np.int64))
        self._count(after[came], sizes[columns.size_codes[last[came]]])

    def clear(self) -> None:
        """Drop all blocks."""
        self.number = self._holdings.renewed(self.number)
        self._counted.clear(0.0)
        self._counted.changes.clear()

    def give_up(self) -> None:
        """Retire the pool."""
        self._holdings.retire(self.number)
