"""The compiled loop that counts the copies of blocks."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from connectors.process.compiled import borrowed, compiled, inlined
from pipeline.reading.columns import REMOVAL, Events, Hashes
from pipeline.residency.changes import CHANGE, ChangeRows
from pipeline.residency.counting.block_table import (
    FETCHED_AHEAD,
    MAX_DEPTH,
    fetch_slots,
    find,
    remove,
)
from pipeline.residency.counting.content_chain import UNKNOWN, follow
from pipeline.residency.histogram import BUCKETS, bucket_of
from schemas.residency import EVICTED, FILLED, GENERATED

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
"""How far `count_copies` came, and what it counted."""

STORED, FIRST, REMOVED, LAST = range(4)
"""Columns of the counts per size code: copies that came, first ones, copies that left, last ones."""

DECODING_SECONDS: Final = 4.0
"""Since the block before came: then decoding may have completed one that is announced alone."""
DECODED_TOKENS: Final = 128
"""Of a block: to decode more takes longer on most engines, so what comes so soon was rather a prompt's."""

FINISHED, NEEDS_ROOM, NEEDS_SIZES = range(3)
"""Why `count_copies` returned; in the last two cases before the next operation of its progress."""


class Rules(NamedTuple):
    """What holds of the events of a pool."""

    chained: bool
    """The blocks of an event follow each other after their parent. The root and depth of blocks whose parent
    is not resident are 0: not known."""
    one_copy: bool
    """A store of a resident block repeats it."""
    all_known: bool
    """Every event so far is known: if an unknown block leaves, some store that seemed to repeat others did
    not, and none is taken for a repetition any more."""
    decodes_singly: bool
    """A block that decoding completes is announced by itself, and what is computed for a prompt together."""


class Tally(NamedTuple):
    """What the loop counts, and how far it came."""

    counts: npt.NDArray[np.int64]
    """(size codes, 4): by STORED, FIRST, REMOVED, LAST."""
    lifetimes: npt.NDArray[np.int64]
    """(BUCKETS,): last copies that left."""
    progress: npt.NDArray[np.void]
    """(1,) of PROGRESS."""


def room_for(operations: int) -> ChangeRows:
    """Return room for the changes that so many operations make; how much is filled, the progress says."""
    return np.empty(operations, CHANGE)


def no_tally(size_codes: int) -> Tally:
    """Return the tally of nothing yet."""
    return Tally(
        np.zeros((size_codes, LAST + 1), np.int64), np.zeros(BUCKETS, np.int64), np.zeros(1, PROGRESS)
    )


@compiled
def _all_resident(entries: Any, spread: np.uint64, hashes: Hashes, start: int, end: int) -> bool:
    for at in range(start, end):  # noqa: SIM110 - a generator cannot be compiled
        if entries[find(entries, spread, hashes[at])].copies == 0:
            return False
    return True


@inlined
def _code_of(block_size: int, sizes: npt.NDArray[np.int64]) -> int:
    """Return the code of a block size, which has one."""
    code = 0
    while code < len(sizes) - 1 and sizes[code] != block_size:
        code += 1
    return code


@inlined
def _content_after(content: np.uint64, known: bool, links: Hashes, at: int) -> np.uint64:
    """Return the content hash of the block behind one whose is this, if that is known; else UNKNOWN."""
    after: np.uint64 = UNKNOWN
    if known and len(links) > 0 and links[at] != UNKNOWN:
        after = follow(content, links[at])
    return after


@compiled
def count_copies(
    entries: Any,
    contents: Hashes,
    spread: np.uint64,
    room: int,
    sizes: npt.NDArray[np.int64],
    rules: Rules,
    events: Events,
    found: ChangeRows,
    tally: Tally,
) -> int:
    """Apply events in order until all are applied, or one operation needs the interpreter.

    `entries`, `contents` and `spread` are those of a `BlockTable` with `room`, which keeps contents if there
    are links; `sizes` are the tokens per block of each size code. A count never falls below zero: removals of
    unknown blocks are normal after joining late. What became and ceased to be resident goes to `found`.

    Changes name a block by its content hash if that was known when it was filled, else by its own hash.
    """
    contents = borrowed(contents)
    entries, events, found, tally = borrowed(entries), borrowed(events), borrowed(found), borrowed(tally)
    rows, hashes, links, counts = events.rows, events.hashes, events.links, tally.counts
    kept, linked = len(contents) > 0, len(links) > 0
    reached = tally.progress[0]
    event, start, operation = reached.event, reached.begin, reached.operation
    live, changes = reached.live, reached.changes
    stored_tokens = reached.stored_tokens
    fetched = operation
    outcome = FINISHED
    while event < len(rows) and outcome == FINISHED:
        row = rows[event]
        at, end, removal = row.time, start + row.hashes, row.block_size == REMOVAL
        code = 0 if removal else _code_of(row.block_size, sizes)
        while fetched < min(end + FETCHED_AHEAD, len(hashes)):
            fetch_slots(entries, spread, hashes[fetched])
            fetched += 1
        if (
            operation == start
            and row.may_repeat
            and not (rules.all_known and reached.unknown_removed > 0)
            and _all_resident(entries, spread, hashes, operation, end)
        ):
            reached.reannounced += end - operation
            if not rules.one_copy:
                reached.repeats += end - operation
            operation = end
        root, before = np.uint64(0), 0
        # Content hash of the block before, and whether it is known: 0 at the start of a chain.
        content, known = UNKNOWN, False
        kind = FILLED
        if rules.chained and not removal and operation < end:
            if row.parent == 0:
                root, known = hashes[start], linked
                if linked and links[start] != UNKNOWN:
                    root = follow(UNKNOWN, links[start])
            else:
                above = find(entries, spread, row.parent)
                parent = entries[above]
                if parent.copies != 0:
                    root, before = parent.root, np.int64(parent.depth)
                    soon = at - parent.birth <= DECODING_SECONDS
                    if rules.decodes_singly and soon and row.hashes == 1 and row.block_size <= DECODED_TOKENS:
                        kind = GENERATED
                    if kept:
                        content = contents[above]
                        known = content != UNKNOWN
            if kept:
                for done in range(start, operation):  # before it went to the interpreter
                    content = _content_after(content, known, links, done)
                    if content == UNKNOWN:
                        content = contents[find(entries, spread, hashes[done])]
                    known = content != UNKNOWN
        while operation < end:
            block = hashes[operation]
            slot = find(entries, spread, block)
            entry = entries[slot]
            if not removal:
                after = content
                if kept:
                    after = _content_after(content, known, links, operation) if rules.chained else UNKNOWN
                    if not rules.chained and linked:
                        after = links[operation]
                if entry.copies == 0:
                    if live >= room:
                        outcome = NEEDS_ROOM
                        break
                    entry.hash = block
                    entry.birth = at
                    entry.size_code = code
                    entry.several_sizes = 0
                    if kept:
                        contents[slot] = after
                        if after == UNKNOWN:
                            told = linked and links[operation] != UNKNOWN
                            reached.parent_unknown += told
                            reached.not_told += not told
                    entry.root = root
                    entry.depth = 0 if root == 0 else min(before + operation - start + 1, MAX_DEPTH)
                    live += 1
                    counts[code, FIRST] += 1
                    change = found[changes]
                    change.by_content = kept and after != UNKNOWN
                    change.hash = after if change.by_content else block
                    change.kind = kind
                    change.time = at
                    change.block_size = sizes[code]
                    change.stored = stored_tokens
                    change.root = root
                    change.depth = entry.depth
                    change.adapter = row.adapter
                    changes += 1
                elif rules.one_copy:
                    if kept:
                        content = after if after != UNKNOWN else contents[slot]
                        known = content != UNKNOWN
                    reached.reannounced += 1
                    operation += 1
                    continue
                elif entry.size_code != code:
                    outcome = NEEDS_SIZES
                    break
                if kept:
                    content = after if after != UNKNOWN else contents[slot]
                    known = content != UNKNOWN
                entry.copies += 1
                counts[code, STORED] += 1
                stored_tokens += sizes[code]
            elif entry.copies == 0:
                reached.unknown_removed += 1
            elif entry.several_sizes != 0:
                outcome = NEEDS_SIZES
                break
            else:
                counts[entry.size_code, REMOVED] += 1
                if entry.copies > 1:
                    entry.copies -= 1
                else:
                    counts[entry.size_code, LAST] += 1
                    tally.lifetimes[bucket_of(at - entry.birth)] += 1
                    change = found[changes]
                    change.by_content = kept and contents[slot] != UNKNOWN
                    change.hash = contents[slot] if change.by_content else block
                    change.kind = EVICTED
                    change.time = at
                    change.block_size = sizes[entry.size_code]
                    change.stored = stored_tokens
                    changes += 1
                    live -= 1
                    remove(entries, contents, spread, slot)
            operation += 1
        if outcome == FINISHED:
            event += 1
            start = end
    reached.event, reached.begin, reached.operation = event, start, operation
    reached.live, reached.changes = live, changes
    reached.stored_tokens = stored_tokens
    return outcome
