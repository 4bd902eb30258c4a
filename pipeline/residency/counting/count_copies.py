"""The loop that counts the copies of blocks, for all stores that have them.

It is a template (`connectors.process.template`). The verbs below determine where a block's entry is and what
is kept of it. Each store has its own: `block_counting` for the replica agent's tables,
`pipeline.index.holdings.counting` for the table that all pools of the index share.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from connectors.process.compiled import borrowed, inlined
from connectors.process.template import part
from pipeline.reading.columns import REMOVAL, Events
from pipeline.residency.histogram import BUCKETS

PROGRESS: Final = np.dtype(
    [
        ("event", np.int64),  # the next one
        ("begin", np.int64),  # of its hashes
        ("operation", np.int64),  # the next one: an index of the events' hashes
        ("live", np.int64),  # entries in the table
        ("changes", np.int64),
        ("unknown_removed", np.int64),
        ("reannounced", np.int64),
        ("repeats", np.int64),  # of those, that might have been copies
        ("stored_tokens", np.int64),
        ("not_told", np.int64),
        ("parent_unknown", np.int64),
    ]
)
"""How far the loop came, and what it counted."""

FETCHED_AHEAD: Final = 64
"""How many blocks ahead of the loop their slots are prefetched into the processor's cache."""

STORED, FIRST, REMOVED, LAST = range(4)
"""Columns of the counts per size code: copies that came, first ones, copies that left, last ones."""

FINISHED, NEEDS_ROOM, NEEDS_SIZES, LEFT_UNKNOWN = range(4)
"""Why the loop returned; unless FINISHED, it did not apply the operation that its progress shows."""


class Rules(NamedTuple):
    """What holds for the events of a pool."""

    chained: bool
    """The blocks of an event follow each other after their parent. The root and depth of blocks whose parent
    is not resident are 0: not known."""
    one_copy: bool
    """A store of a resident block repeats it."""
    all_known: bool
    """Every event so far is known: if an unknown block leaves, some store that seemed to repeat others was a
    copy, and none is taken for a repetition any more."""
    decodes_singly: bool
    """A block that decoding completes is announced by itself, and what is computed for a prompt together."""
    repeated: bool = False
    """Blocks were announced again before, and an unknown one that leaves may be one of these."""


class Tally(NamedTuple):
    """What the loop counts, and how far it came."""

    counts: npt.NDArray[np.int64]
    """(size codes, 4): by STORED, FIRST, REMOVED, LAST."""
    lifetimes: npt.NDArray[np.int64]
    """(BUCKETS,): last copies that left, by the block's lifetime."""
    progress: npt.NDArray[np.void]
    """(1,) of PROGRESS."""


def no_tally(size_codes: int) -> Tally:
    """Return an empty tally."""
    return Tally(
        np.zeros((size_codes, LAST + 1), np.int64), np.zeros(BUCKETS, np.int64), np.zeros(1, PROGRESS)
    )


class Copy(NamedTuple):
    """What an operation is about: a copy that comes, or the last one, which leaves."""

    event: int
    operation: int
    size_code: int
    tokens: int
    """Of a block of its size."""
    stored: int
    """Tokens stored in the pool before."""


# The verbs. `store` has the arrays, `pool` identifies the pool.
fetch: Any = part
"""`fetch(store, pool, block)` prefetches into the cache what `find` looks at."""
find: Any = part
"""`find(store, pool, block)` returns the slot of a block, or the free one where it would come."""
held_at: Any = part
"""`held_at(store, pool, slot)` returns what the pool has of the block at a slot: how many `copies`, 0 if it
is not resident, the `size_code` of the first one, and whether there are `several_sizes`."""
first: Any = part
"""`first(store, pool, slot, chain, copy, tally, events)`: a block comes that was not resident; returns False,
and does nothing, if it has no room."""
add: Any = part
"""`add(store, slot, held, copies)`: a copy more, or one less of several."""
last: Any = part
"""`last(store, pool, slot, held, copy, tally, events)`: the last copy leaves."""


@inlined
def chain_of(store: Any, pool: Any, rules: Any, events: Any, event: int, start: int, operation: int) -> int:
    """Return what is known of the chain of an event before an operation; its first operation is `start`.

    By default, stores know nothing of chains.
    """
    return 0


@inlined
def reaches(store: Any, rules: Any, chain: Any, events: Any, operation: int) -> Any:
    """Return what is known of a chain at the block of an operation, using what its event says of it."""
    return chain


@inlined
def goes_on(store: Any, chain: Any, slot: int) -> Any:
    """Return what is known of a chain after the block at a slot, which is resident now."""
    return chain


@inlined
def code_of(block_size: int, sizes: npt.NDArray[np.int64]) -> int:
    """Return the code of a block size, which has one."""
    code = 0
    while code < len(sizes) - 1 and sizes[code] != block_size:
        code += 1
    return code


def count(
    store: Any, pool: Any, rules: Rules, sizes: npt.NDArray[np.int64], events: Events, tally: Tally
) -> int:
    """Apply events in order until all are applied, or one operation needs the interpreter.

    `sizes` are the tokens per block of each size code. A count never falls below zero: removals of unknown
    blocks are normal after joining late. At the end, `may_repeat` is set only for stores that did repeat.
    """
    store, events, tally = borrowed(store), borrowed(events), borrowed(tally)
    rows, hashes, counts = events.rows, events.hashes, tally.counts
    reached = tally.progress[0]
    event, start, operation = reached.event, reached.begin, reached.operation
    stored_tokens = reached.stored_tokens
    fetched = operation
    outcome = FINISHED
    while event < len(rows) and outcome == FINISHED:
        row = rows[event]
        end, removal = start + row.hashes, row.block_size == REMOVAL
        code = 0 if removal else code_of(row.block_size, sizes)
        while fetched < min(end + FETCHED_AHEAD, len(hashes)):
            fetch(store, pool, hashes[fetched])
            fetched += 1
        if operation == start and row.may_repeat:
            known = start
            if not (rules.all_known and reached.unknown_removed > 0):
                while known < end and held_at(store, pool, find(store, pool, hashes[known])).copies != 0:
                    known += 1
            row.may_repeat = known == end
            if row.may_repeat:
                reached.reannounced += end - start
                if not rules.one_copy:
                    reached.repeats += end - start
                operation = end
        chain = chain_of(store, pool, rules, events, event, start, operation)
        while operation < end:
            slot = find(store, pool, hashes[operation])
            held = held_at(store, pool, slot)
            if not removal:
                reached_by = reaches(store, rules, chain, events, operation)
                repeats = rules.one_copy and held.copies != 0
                if held.copies == 0:
                    copy = Copy(event, operation, code, sizes[code], stored_tokens)
                    if not first(store, pool, slot, reached_by, copy, tally, events):
                        outcome = NEEDS_ROOM
                        break
                    counts[code, FIRST] += 1
                elif repeats:
                    reached.reannounced += 1
                elif held.size_code != code:
                    outcome = NEEDS_SIZES
                    break
                else:
                    add(store, slot, held, 1)
                if not repeats:
                    counts[code, STORED] += 1
                    stored_tokens += sizes[code]
                chain = goes_on(store, reached_by, slot)
            elif held.copies == 0:
                if rules.repeated or (rules.all_known and reached.repeats > 0):
                    outcome = LEFT_UNKNOWN
                    break
                reached.unknown_removed += 1
            elif held.several_sizes:
                outcome = NEEDS_SIZES
                break
            else:
                of = held.size_code
                counts[of, REMOVED] += 1
                if held.copies > 1:
                    add(store, slot, held, -1)
                else:
                    counts[of, LAST] += 1
                    left = Copy(event, operation, of, sizes[of], stored_tokens)
                    last(store, pool, slot, held, left, tally, events)
            operation += 1
        if outcome == FINISHED:
            event += 1
            start = end
    reached.event, reached.begin, reached.operation = event, start, operation
    reached.stored_tokens = stored_tokens
    return outcome
