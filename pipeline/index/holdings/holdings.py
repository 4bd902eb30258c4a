"""All blocks of all sources: the table, the pools and sources that have numbers in it, and room for more."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from pipeline.index.holdings.counting import (
    LOAD,
    Holder,
    Table,
    count_holders,
    held_by,
    put_holders,
    set_word,
    sweep,
    word_at,
)
from pipeline.index.holdings.growing_rows import GrowingRows
from pipeline.index.holdings.long_array import LongArray
from pipeline.index.holdings.matching import MATCH, SOURCE, ExtraHolders, Pools, Scratch, match
from pipeline.index.holdings.sets import ROWS_USED, Words, no_counts
from pipeline.index.holdings.size_lists import SizeLists
from pipeline.index.holdings.usable import NOBODY, POOL
from pipeline.index.holdings.words import MOST_COPIES, MOST_POOLS, MOST_SIZES, SEVERAL_SIZES
from pipeline.reading.columns import Events, Hashes
from pipeline.residency.counting.block_entries import BlockColumns
from pipeline.residency.counting.copies import Sizes
from pipeline.residency.counting.count_copies import NEEDS_ROOM, Rules, Tally

LOAD_AFTER_GROWTH = 0.6
MOVED_FOR_EACH = 8
"""Slots moved for each block that arrives while the table grows: that is done long before it is full."""
LEAST_MOVED = 1 << 10
SWEPT_AT_ONCE = 1 << 16
"""Slots: a fraction of a millisecond."""
LEAST_SCRATCH = 1 << 12

Matches = np.ndarray
NO_EXTRA_HOLDERS = ExtraHolders(*(np.empty(0, np.int64) for _ in range(4)))


class TooManyPools(Exception):
    """There are more media and groups of sources than the table has numbers for."""


class Holdings:
    """Which pools hold which block. Nothing here depends on time, only on the order of calls."""

    def __init__(self) -> None:
        self._rows, self._heap = GrowingRows(1024), LongArray(1024, np.uint64)
        self._counts, self._held = no_counts(), np.zeros(64, np.int64)
        self._sizes = SizeLists()
        self._known = Pools(np.zeros(64, POOL), np.zeros(64, SOURCE), self._sizes.array)
        self._known.pools["source"] = NOBODY
        self._retired = np.zeros(64, np.bool_)
        self._pools = 0
        """How many numbers were ever given out; those from here on are unused."""
        self._free_pools: list[int] = []
        self._to_sweep: set[int] = set()
        self._swept_to = 0
        self._sources = 0
        self._free_sources: list[int] = []
        self._scratch = _scratch(LEAST_SCRATCH, 1, 64, 64, 1)

    @property
    def _table(self) -> Table:
        """Return the arrays. Do not keep them: memory that an array refers to cannot move when it grows."""
        return Table(self._rows.array, self._heap.array, self._counts, self._held)

    @property
    def blocks(self) -> int:
        """Return how many blocks are held, each counted once for every pool that holds it."""
        return int(self._held.sum() - self._held[self._retired].sum())

    @property
    def bytes_allocated(self) -> int:
        """Return the size of the table in bytes."""
        return int(sum(part.nbytes for part in (*self._table, *self._known)))

    # Numbers

    def new_source(self, scope: int) -> int:
        """Return a number for a source without pools."""
        if self._free_sources:
            number = self._free_sources.pop()
        else:
            number, self._sources = self._sources, self._sources + 1
            if number == len(self._known.sources):
                self._known = self._known._replace(sources=_doubled(self._known.sources))
        self._known.sources[number] = (NOBODY, scope)
        return number

    def set_scope(self, source: int, scope: int) -> None:
        """Set the scope (model, hash domain and tenant) of what a source holds."""
        self._known.sources["scope"][source] = scope

    def forget_source(self, source: int) -> None:
        """Free the number of a source whose pools are all retired."""
        self._free_sources.append(source)

    def new_pool(self, source: int, *, tier: int, group: int) -> int:
        """Return a number for a pool that holds nothing. Raises TooManyPools."""
        if self._free_pools:
            number = self._free_pools.pop()
        else:
            number, self._pools = self._pools, self._pools + 1
            if number >= MOST_POOLS:
                raise TooManyPools
            if number == len(self._known.pools):
                self._double_pools()
        pool = self._known.pools[number]
        pool["source"], pool["tier"], pool["group"] = source, tier, group
        pool["window"] = pool["sizes"] = pool["size_codes"] = 0
        pool["doubts"] = 0
        pool["next"] = self._known.sources["first"][source]
        self._known.sources["first"][source] = number
        return number

    def _double_pools(self) -> None:
        self._known = self._known._replace(pools=_doubled(self._known.pools))
        self._known.pools["source"][self._pools :] = NOBODY
        self._retired = _doubled(self._retired)
        self._held = _doubled(self._held)

    def describe(self, pool: int, sizes: Sequence[int], window: int, *, doubts: int = 0) -> None:
        """Set a pool's block sizes, by their codes, its group's window, and the doubts about its blocks."""
        assert len(sizes) <= MOST_SIZES
        begin = self._sizes.acquire(sizes)
        self._known = self._known._replace(sizes=self._sizes.array)
        row = self._known.pools[pool]
        self._sizes.release(int(row["sizes"]), int(row["size_codes"]))
        row["sizes"], row["size_codes"], row["window"] = begin, len(sizes), window
        row["doubts"] = doubts

    def retire(self, pool: int) -> None:
        """Retire a pool: what it held no longer counts, and `sweep` removes it in time."""
        row = self._known.pools[pool]
        source = int(row["source"])
        before, number = NOBODY, int(self._known.sources["first"][source])
        while number != pool:
            before, number = number, int(self._known.pools["next"][number])
        if before == NOBODY:
            self._known.sources["first"][source] = row["next"]
        else:
            self._known.pools["next"][before] = row["next"]
        row["source"] = NOBODY
        self._sizes.release(int(row["sizes"]), int(row["size_codes"]))
        if self._held[pool]:
            self._retired[pool] = True
            self._to_sweep.add(pool)
        else:
            self._free_pools.append(pool)

    def renewed(self, pool: int) -> int:
        """Retire a pool, and return the number of an empty one with the same description."""
        row = self._known.pools[pool].copy()
        number = self.new_pool(int(row["source"]), tier=int(row["tier"]), group=int(row["group"]))
        sizes = self._sizes.of(int(row["sizes"]), int(row["size_codes"]))
        self.describe(number, sizes, int(row["window"]), doubts=int(row["doubts"]))
        self.retire(pool)
        return number

    # Blocks

    def held(self, pool: int) -> int:
        """Return how many blocks a pool holds."""
        return int(self._held[pool])

    def make_room(self, blocks: int) -> None:
        """Make room for this many more blocks."""
        needed = int(self._counts[ROWS_USED]) + blocks
        if needed > len(self._rows.array) * LOAD:
            self._lengthen_rows(needed)
        self._rows.go_on(len(self._rows.array))

    def count(self, pool: int, events: Events, sizes: Sizes, rules: Rules, tally: Tally) -> int:
        """Apply events to a pool as `count_copies` does, and make room where that needs it."""
        while True:
            self._go_on(len(events.hashes))
            outcome = count_holders(self._table, self._holder(pool), rules, sizes, events, tally)
            if outcome != NEEDS_ROOM:
                return outcome
            self._grow()

    def _holder(self, pool: int) -> Holder:
        return Holder(self._rows.spread, pool)

    def put(self, pool: int, columns: BlockColumns) -> None:
        """Set what a pool holds as in a checkpoint; zero copies removes a block."""
        if any(len(column) != len(columns.hashes) for column in columns):
            raise ValueError("columns of different lengths")
        done = 0
        while True:
            self._go_on(len(columns.hashes))
            done = put_holders(self._table, self._rows.spread, pool, columns, done)
            if done == len(columns.hashes):
                return
            self._grow()

    def word(self, pool: int, block: int) -> int:
        """Return the word of a pool for a block, 0 if it does not hold it."""
        return int(word_at(self._table, self._holder(pool), np.uint64(block)))

    def add(self, pool: int, block: int, copies: int, *, several_sizes: bool = False) -> None:
        """Add copies of a block, if a pool holds it, or remove them if negative; one must be left."""
        word = self.word(pool, block)
        copies = min((word & MOST_COPIES) + copies, MOST_COPIES)
        several = int(SEVERAL_SIZES)
        word = word & ~(MOST_COPIES | several) | copies | several * several_sizes
        set_word(self._table, self._holder(pool), np.uint64(block), np.uint64(word))

    def blocks_of(self, pool: int) -> tuple[Hashes, Words]:
        """Return the blocks that a pool holds and their words; scans the table until it has found all."""
        hashes, words = np.empty(self.held(pool), np.uint64), np.empty(self.held(pool), np.uint64)
        held_by(self._table, pool, hashes, words)
        return hashes, words

    def sweep(self) -> bool:
        """Remove some of what retired pools held; return whether anything is left to remove."""
        if not self._to_sweep:
            return False
        self._swept_to = sweep(self._table, self._rows.spread, self._retired, self._swept_to, SWEPT_AT_ONCE)
        if self._swept_to == 0:
            for pool in [pool for pool in self._to_sweep if not self._held[pool]]:
                self._to_sweep.remove(pool)
                self._retired[pool] = False
                self._free_pools.append(pool)
        return bool(self._to_sweep)

    def _grow(self) -> None:
        """Make room where there is none: for rows if they are at their full load, or else for sets."""
        used = int(self._counts[ROWS_USED])
        if used + 1 > len(self._rows.array) * LOAD:
            self._lengthen_rows(used + 1)
        else:
            words = len(self._heap.array)
            self._heap.lengthen(words + max(1024, words // 2, 2 * self._pools))

    def _lengthen_rows(self, blocks: int) -> None:
        self._rows.grow(int(blocks / LOAD_AFTER_GROWTH) + 1024)

    def _go_on(self, blocks: int) -> None:
        self._rows.go_on(max(LEAST_MOVED, MOVED_FOR_EACH * blocks))

    # Questions

    def match(
        self,
        scopes: np.ndarray,
        hashes: Hashes,
        ends: np.ndarray,
        extra: ExtraHolders,
        *,
        longest: int,
        default_size: int,
    ) -> Matches:
        """Return the sources that hold a beginning of each chain, chain by chain: see `match`.

        Chains lie one after another in `hashes`, each up to its end, with at most `longest` blocks. `scopes`
        is a mask over scope numbers: which are asked for. The result is valid until the next call.
        """
        words = max(1, (longest + 63) // 64)
        scratch = self._scratch
        most = len(scratch.found)
        while True:
            if (
                len(scratch.masks) < most * words
                or len(scratch.tokens) <= longest
                or len(scratch.pool_marks) < len(self._known.pools)
                or len(scratch.source_marks) < len(self._known.sources)
                or len(scratch.found) < most
            ):
                scratch = self._scratch = _scratch(
                    most, words, len(self._known.pools), len(self._known.sources), longest
                )
            count = match(
                self._table,
                self._rows.spread,
                self._known,
                scopes,
                hashes,
                ends,
                extra,
                default_size,
                scratch,
            )
            if count >= 0:
                return scratch.matches[:count]
            most *= 2


def _scratch(most: int, words: int, pools: int, sources: int, blocks: int) -> Scratch:
    return Scratch(
        np.full(pools, NOBODY, np.int32),
        np.full(sources, NOBODY, np.int32),
        np.zeros(most, np.int32),
        np.zeros(most * words, np.uint64),
        np.zeros(blocks + 1, np.int64),
        np.zeros(blocks, np.uint64),
        np.zeros(most, MATCH),
    )


def _doubled(column: np.ndarray) -> np.ndarray:
    return np.concatenate((column, np.zeros_like(column)))
