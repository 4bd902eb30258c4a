"""The compiled loop that counts the copies of blocks, as `pipeline.residency.counting.count_copies` does.

What differs is where: all pools share a table, and nothing is kept that only rows and checkpoints need. Both
follow the same rules (docs/exactness.md); tests compare them.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from connectors.process.compiled import borrowed, compiled, inlined
from pipeline.index.holdings.rows import FETCHED_AHEAD, Rows, Spread, fetch_row, find, free_row
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
from pipeline.reading.columns import REMOVAL, Events, Hashes
from pipeline.residency.counting.block_table import BlockColumns
from pipeline.residency.counting.count_copies import (
    FINISHED,
    FIRST,
    LAST,
    NEEDS_ROOM,
    NEEDS_SIZES,
    REMOVED,
    STORED,
    Tally,
)

I64 = npt.NDArray[np.int64]

LOAD: Final = 0.8
"""Of the rows, at most."""
ABSENT: Final = -1
"""Instead of a place in the heap: the pool does not hold the block."""
IN_ROW: Final = -2
"""Instead of one: its word is in the row."""


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
    """Return where the word of a pool is, given the slot of a block: in the heap, IN_ROW or ABSENT."""
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
def _all_held(rows: Any, heap: Any, spread: Spread, hashes: Hashes, start: int, end: int, pool: int) -> bool:
    for at in range(start, end):
        if place_in(rows, heap, find(rows, spread, hashes[at]), pool) == ABSENT:
            return False
    return True


@compiled
def add_holder(rows: Any, heap: Any, counts: Any, slot: int, block: np.uint64, word: np.uint64) -> bool:
    """Add a holder that a block does not have; return False, and do nothing, if there is no room."""
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
    """Take away the holder whose word is at a place, or in the row."""
    if place == IN_ROW:
        counts[ROWS_USED] -= 1
        free_row(rows, spread, slot)
        return
    left = without_holder(heap, counts, np.int64(rows[slot].word & OFFSET_MASK), place)
    if left != NOTHING:
        rows[slot].word = left


@compiled
def count_holders(
    table: Table,
    spread: Spread,
    pool: int,
    sizes: I64,
    one_copy: bool,
    all_known: bool,
    events: Events,
    tally: Tally,
) -> int:
    """Apply the events of a pool in order until all are applied, or one operation needs the interpreter.

    `sizes` are the tokens per block of each size code; with `one_copy` a store of a resident block repeats
    it, with `all_known` none seems to once an unknown block left. Of the tally's progress only what events
    and counts need is kept.
    """
    table, events, tally = borrowed(table), borrowed(events), borrowed(tally)
    rows, heap, used, held = table.rows, table.heap, table.counts, table.held
    stream, hashes, counts = events.rows, events.hashes, tally.counts
    reached = tally.progress[0]
    event, start, operation = reached.event, reached.begin, reached.operation
    stored_tokens = reached.stored_tokens
    fetched = operation
    outcome = FINISHED
    while event < len(stream) and outcome == FINISHED:
        row = stream[event]
        end, removal = start + row.hashes, row.block_size == REMOVAL
        code = 0
        if not removal:
            while code < len(sizes) - 1 and sizes[code] != row.block_size:
                code += 1
        while fetched < min(end + FETCHED_AHEAD, len(hashes)):
            fetch_row(rows, spread, hashes[fetched])
            fetched += 1
        if (
            operation == start
            and row.may_repeat
            and not (all_known and reached.unknown_removed > 0)
            and _all_held(rows, heap, spread, hashes, operation, end, pool)
        ):
            reached.reannounced += end - operation
            operation = end
        while operation < end:
            block = hashes[operation]
            slot = find(rows, spread, block)
            place = place_in(rows, heap, slot, pool)
            if place == ABSENT:
                if removal:
                    reached.unknown_removed += 1
                else:
                    if not add_holder(rows, heap, used, slot, block, word_of(pool, code, 1)):
                        outcome = NEEDS_ROOM
                        break
                    held[pool] += 1
                    counts[code, FIRST] += 1
                    counts[code, STORED] += 1
                    stored_tokens += sizes[code]
                operation += 1
                continue
            word = rows[slot].word if place == IN_ROW else heap[place]
            known = size_code_of(word)
            if removal:
                if word & SEVERAL_SIZES != NOTHING:
                    outcome = NEEDS_SIZES
                    break
                counts[known, REMOVED] += 1
                if word & COPIES_MASK == ONE_COPY:
                    counts[known, LAST] += 1
                    held[pool] -= 1
                    drop_holder(rows, heap, used, spread, slot, place)
                    operation += 1
                    continue
                word -= ONE_COPY
            elif one_copy:
                reached.reannounced += 1
                operation += 1
                continue
            else:
                if known != code:
                    outcome = NEEDS_SIZES
                    break
                counts[code, STORED] += 1
                stored_tokens += sizes[code]
                if word & COPIES_MASK != COPIES_MASK:
                    word += ONE_COPY
            if place == IN_ROW:
                rows[slot].word = word
            else:
                heap[place] = word
            operation += 1
        if outcome == FINISHED:
            event += 1
            start = end
    reached.event, reached.begin, reached.operation = event, start, operation
    reached.stored_tokens = stored_tokens
    return outcome


@compiled
def put_holders(table: Table, spread: Spread, pool: int, columns: BlockColumns, begin: int) -> int:
    """Set holders from entry `begin` on as a checkpoint has them, or remove those without copies.

    Return the number of entries, or of the first one that there is no room for.
    """
    table, columns = borrowed(table), borrowed(columns)
    rows, heap, used, held = table.rows, table.heap, table.counts, table.held
    hashes = columns.hashes
    for at in range(begin, len(hashes)):
        if at + FETCHED_AHEAD < len(hashes):
            fetch_row(rows, spread, hashes[at + FETCHED_AHEAD])
        slot = find(rows, spread, hashes[at])
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
        elif place == IN_ROW:
            rows[slot].word = word
        else:
            heap[place] = word
    return len(hashes)


@compiled
def sweep(table: Table, spread: Spread, retired: Any, start: int, slots: int) -> int:
    """Take away holders of retired pools in so many slots from `start`; return the slot to go on with."""
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
                    continue  # what came into the slot
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
                    continue  # the one that is left, which may be retired, too
        slot += 1
    return 0 if slot >= len(rows) else slot


@compiled
def held_by(table: Table, pool: int, hashes: Hashes, words: Words) -> int:
    """Copy the blocks of a pool that there is room for, and its words; return how many slots that took."""
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
def word_at(table: Table, spread: Spread, pool: int, block: np.uint64) -> Any:
    """Return the word of a pool for a block; NOTHING if it does not hold it."""
    slot = find(table.rows, spread, block)
    place = place_in(table.rows, table.heap, slot, pool)
    if place == ABSENT:
        return NOTHING
    return table.rows[slot].word if place == IN_ROW else table.heap[place]


@compiled
def set_word(table: Table, spread: Spread, pool: int, block: np.uint64, word: np.uint64) -> None:
    """Replace the word of a pool for a block that it holds."""
    slot = find(table.rows, spread, block)
    place = place_in(table.rows, table.heap, slot, pool)
    if place == IN_ROW:
        table.rows[slot].word = word
    elif place != ABSENT:
        table.heap[place] = word
