"""The blocks of a pool by their content hashes: one more pool of the shared table, of a source of its own.

Removals name blocks by the engine's hashes, so copies are counted by these, as the replica agent does.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from pipeline.index.holdings.holdings import Holdings
from pipeline.index.pools.tiers import tier_of, window_of
from pipeline.residency.changes import Changes
from pipeline.residency.counting.block_table import BlockColumns, Entries, Hashes
from pipeline.residency.counting.count_copies import EVENT, FINISHED, REMOVAL, Events, no_tally
from pipeline.residency.counting.pool import Pool
from pipeline.residency.counting.shared import Shared
from schemas.checkpoints import FlowState, PoolHead
from schemas.residency import FILLED


class ContentPool:
    """Follows the pool of an engine's hashes beside it."""

    def __init__(
        self, beside: PoolHead, live: Entries, shared: Shared, holdings: Holdings, source: int
    ) -> None:
        """`live`: what the pool beside it holds, of which no content is known; `source`: its number."""
        head = PoolHead(beside.medium, beside.group_idx, FlowState(), removes=True)
        self._beside = beside
        self._counted = Pool(head, shared)
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
        """The pool beside has another block size, or says more of itself."""
        head = self._beside
        for size in head.block_sizes:
            self._counted.announce(size, several=True)
        store_only = head.store_only and not head.removes
        self._holdings.describe(self.number, head.block_sizes, window_of(head), store_only=store_only)

    def contents_of(self, hashes: Hashes) -> Hashes:
        """Return the content hash of each resident block by its own hash; 0 where it is not known."""
        return self._counted.table.contents_of(hashes)

    def count(self, events: Events) -> None:
        """Follow events of the pool."""
        counted = self._counted
        counted.add(Events(events.rows.copy(), events.hashes, events.links), repeatable=True)
        counted.settle()
        counted.take_unsaved()
        counted.head.flow = FlowState()
        for changes in counted.changes:
            self._follow(changes)
        counted.changes.clear()

    def _follow(self, changes: Changes) -> None:
        rows = changes.rows[changes.rows["by_content"]]
        if not len(rows):
            return
        came = rows["kind"] == FILLED
        stream = np.zeros(len(rows), EVENT)
        stream["hashes"] = 1
        stream["time"] = rows["time"]
        stream["block_size"] = np.where(came, rows["block_size"].astype(np.int64), REMOVAL)
        sizes = self._counted.head.block_sizes
        hashes = np.ascontiguousarray(rows["hash"])
        outcome = self._holdings.count(
            self.number, sizes, Events(stream, hashes), no_tally(max(1, len(sizes)))
        )
        assert outcome == FINISHED

    def put(self, columns: BlockColumns) -> None:
        """Set what the pool holds as a checkpoint has it; zero copies removes a block.

        A block may come and leave several times in these columns: what they end with counts.
        """
        blocks, from_end = np.unique(columns.hashes[::-1], return_index=True)
        last = len(columns.hashes) - 1 - from_end
        before = self.contents_of(blocks)
        self._counted.put(columns)
        after = self.contents_of(blocks)
        gone = before[(before != 0) & (before != after)]
        held = after != 0
        self._set(gone, np.zeros(len(gone), np.int32), np.zeros(len(gone), np.uint16))
        self._set(after[held], np.ones(int(held.sum()), np.int32), columns.size_codes[last[held]])

    def _set(self, contents: Hashes, copies: Any, size_codes: Any) -> None:
        count = len(contents)
        nothing = np.zeros(count, np.uint64)
        depths = np.zeros(count, np.uint16)
        self._holdings.put(
            self.number,
            BlockColumns(contents, copies, np.zeros(count), size_codes, nothing, depths, nothing),
        )

    def clear(self) -> None:
        """All blocks are gone."""
        self.number = self._holdings.renewed(self.number)
        self._counted.clear(0.0)
        self._counted.changes.clear()

    def given_up(self) -> None:
        """Nobody asks for it any more."""
        self._holdings.retire(self.number)
