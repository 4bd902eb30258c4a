"""The loop that counts copies in the table that all pools of the index share, and other loops over it.

It keeps nothing that only ClickHouse rows and checkpoints need.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from connectors.process.compiled import borrowed, compiled, inlined
from connectors.process.template import over
from pipeline.index.holdings.rows import FETCHED_AHEAD, Rows, Spread, fetch_row, find_row, free_row
from pipeline.index.holdings.sets import (
    ROWS_USED,
    SMALLEST,
    Counts,
    Words,
    count_of,
    new_set,
    place_of,
    with_holder,
    without_holder,
)
from pipeline.index.holdings.words import (
    COPIES_MASK,
    MOST_COPIES,
    MOST_POOLS,
    NOTHING,
    OFFSET_MASK,
    ONE_COPY,
    SET,
    SEVERAL_SIZES,
    pool_of,
    size_code_of,
    word_of,
)
from pipeline.reading.columns import Hashes
from pipeline.residency.counting import count_copies as counting
from pipeline.residency.counting.block_entries import BlockColumns
from pipeline.residency.counting.count_copies import Copy

I64 = npt.NDArray[np.int64]

LOAD: Final = 0.8
"""Largest share of the rows that may be in use."""
ABSENT: Final = -1
"""Instead of a place in the heap: the pool does not hold the block."""
IN_ROW: Final = -2
"""Instead of a place in the heap: the word is in the row itself."""


class Table(NamedTuple):
    """The arrays that the loops walk."""

    rows: Rows
    """(slots,) of ROW."""
    heap: Words
    """(words,)"""
    counts: Counts
    """By ROWS_USED, HEAP_USED and FREE."""
    held: I64
    """(pools,): blocks that each pool holds."""


@inlined
def place_in(rows: Any, heap: Any, slot: int, pool: int) -> int:
    """Return where a pool's word for the block in a slot is: its place in the heap, IN_ROW or ABSENT."""
    place = ABSENT
    word = rows[slot].word
    if word != NOTHING:
        holder = pool_of(word)
        if holder == pool:
            place = IN_ROW
        elif holder == MOST_POOLS:
            place = place_of(heap, np.int64(word & OFFSET_MASK), pool)
    return place


@compiled
def add_holder(rows: Any, heap: Any, counts: Any, slot: int, block: np.uint64, word: np.uint64) -> bool:
    """Add a holder that a block does not have yet; return False, and do nothing, if there is no room."""
    known = rows[slot].word
    if known == NOTHING:
        if counts[ROWS_USED] + 1 > len(rows) * LOAD:
            return False
        counts[ROWS_USED] += 1
        rows[slot].hash = block
        rows[slot].word = word
        return True
    if pool_of(known) == MOST_POOLS:
        offset = with_holder(heap, counts, np.int64(known & OFFSET_MASK), word)
        if offset < 0:
            return False
    else:
        offset = new_set(heap, counts, SMALLEST)
        if offset < 0:
            return False
        with_holder(heap, counts, offset, known)
        with_holder(heap, counts, offset, word)
    rows[slot].word = SET | np.uint64(offset)
    return True


@compiled
def drop_holder(rows: Any, heap: Any, counts: Any, spread: Spread, slot: int, place: int) -> None:
    """Remove the holder whose word is at a place in the heap, or in the row (IN_ROW)."""
    if place == IN_ROW:
        counts[ROWS_USED] -= 1
        free_row(rows, slot, spread)
        return
    left = without_holder(heap, counts, np.int64(rows[slot].word & OFFSET_MASK), place)
    if left != NOTHING:
        rows[slot].word = left


class Holder(NamedTuple):
    """Which pool the loop counts for, and where its blocks are."""

    spread: Spread
    pool: int


class Held(NamedTuple):
    """What a pool holds of a block."""

    copies: int
    size_code: int
    several_sizes: bool
    place: int
    """Where its word is, as `place_in` returns it."""
    word: np.uint64


@inlined
def fetch(store: Table, pool: Holder, block: np.uint64) -> None:
    fetch_row(store.rows, pool.spread, block)


@inlined
def find(store: Table, pool: Holder, block: np.uint64) -> int:
    return find_row(store.rows, block, pool.spread)


@inlined
def held_at(store: Table, pool: Holder, slot: int) -> Held:
    place, word = place_in(store.rows, store.heap, slot, pool.pool), NOTHING
    if place == IN_ROW:
        word = store.rows[slot].word
    elif place != ABSENT:
        word = store.heap[place]
    copies = np.int64(word & COPIES_MASK)
    return Held(copies, size_code_of(word), word & SEVERAL_SIZES != NOTHING, place, word)


@inlined
def first(store: Table, pool: Holder, slot: int, chain: int, copy: Copy, tally: Any, events: Any) -> bool:
    word = word_of(pool.pool, copy.size_code, 1)
    there_is_room = add_holder(
        store.rows, store.heap, store.counts, slot, events.hashes[copy.operation], word
    )
    if there_is_room:
        store.held[pool.pool] += 1
    return there_is_room


@inlined
def add(store: Table, slot: int, held: Held, copies: int) -> None:
    if copies < 0:
        _set(store, slot, held.place, held.word - ONE_COPY)
    elif held.copies != MOST_COPIES:
        _set(store, slot, held.place, held.word + ONE_COPY)


@inlined
def _set(store: Table, slot: int, place: int, word: np.uint64) -> None:
    if place == IN_ROW:
        store.rows[slot].word = word
    else:
        store.heap[place] = word


@inlined
def last(store: Table, pool: Holder, slot: int, held: Held, copy: Copy, tally: Any, events: Any) -> None:
    store.held[pool.pool] -= 1
    drop_holder(store.rows, store.heap, store.counts, pool.spread, slot, held.place)


count_holders = compiled(over(counting.count, "count_holders", globals()))
"""The counting loop of `count_copies`, built from the operations above."""


@compiled
def put_holders(table: Table, spread: Spread, pool: int, columns: BlockColumns, begin: int) -> int:
    """Set holders as in a checkpoint, from its entry `begin` on; an entry without copies removes its holder.

    Return the number of entries, or the index of the first one that there is no room for.
    """
    table, columns = borrowed(table), borrowed(columns)
    rows, heap, used, held = table.rows, table.heap, table.counts, table.held
    hashes = columns.hashes
    for at in range(begin, len(hashes)):
        if at + FETCHED_AHEAD < len(hashes):
            fetch_row(rows, spread, hashes[at + FETCHED_AHEAD])
        slot = find_row(rows, hashes[at], spread)
        place = place_in(rows, heap, slot, pool)
        copies = columns.copies[at]
        if copies <= 0:
            if place != ABSENT:
                held[pool] -= 1
                drop_holder(rows, heap, used, spread, slot, place)
            continue
        word = word_of(pool, np.int64(columns.size_codes[at]), min(np.int64(copies), np.int64(COPIES_MASK)))
        if place == ABSENT:
            if not add_holder(rows, heap, used, slot, hashes[at], word):
                return at
            held[pool] += 1
        else:
            _set(table, slot, place, word)
    return len(hashes)


@compiled
def sweep(table: Table, spread: Spread, retired: Any, start: int, slots: int) -> int:
    """Remove holders of retired pools in `slots` slots from `start` on; return the slot to continue at."""
    table = borrowed(table)
    rows, heap, used, held = table.rows, table.heap, table.counts, table.held
    end = min(start + slots, len(rows))
    slot = start
    while slot < end:
        word = rows[slot].word
        if word != NOTHING:
            holder = pool_of(word)
            if holder != MOST_POOLS:
                if retired[holder]:
                    held[holder] -= 1
                    drop_holder(rows, heap, used, spread, slot, IN_ROW)
                    continue  # with the row that moved into the slot
            else:
                offset = np.int64(word & OFFSET_MASK)
                for place in range(offset + count_of(heap, offset), offset, -1):
                    holder = pool_of(heap[place])
                    if retired[holder]:
                        held[holder] -= 1
                        drop_holder(rows, heap, used, spread, slot, place)
                        if pool_of(rows[slot].word) != MOST_POOLS:
                            break
                if pool_of(rows[slot].word) != MOST_POOLS:
                    continue  # with the holder that is left, whose pool may be retired, too
        slot += 1
    return 0 if slot >= len(rows) else slot


@compiled
def held_by(table: Table, pool: int, hashes: Hashes, words: Words) -> int:
    """Copy a pool's blocks and words as far as the arrays have room; return how many slots were scanned."""
    table = borrowed(table)
    rows, heap = table.rows, table.heap
    count = slot = 0
    while slot < len(rows) and count < len(hashes):
        place = place_in(rows, heap, slot, pool)
        if place != ABSENT:
            hashes[count] = rows[slot].hash
            words[count] = rows[slot].word if place == IN_ROW else heap[place]
            count += 1
        slot += 1
    return slot


@compiled
def word_at(table: Table, pool: Holder, block: np.uint64) -> Any:
    """Return the word of a pool for a block; NOTHING if it does not hold it."""
    return held_at(table, pool, find(table, pool, block)).word


@compiled
def set_word(table: Table, pool: Holder, block: np.uint64, word: np.uint64) -> None:
    """Replace the word of a pool for a block, if the pool holds it."""
    slot = find(table, pool, block)
    place = held_at(table, pool, slot).place
    if place != ABSENT:
        _set(table, slot, place, word)
