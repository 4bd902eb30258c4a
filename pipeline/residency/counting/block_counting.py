"""The loop that counts copies in a pool's block table, and records what became resident or ceased to be.

Changes name a block by its content hash if that was known when it was filled, else by its own hash.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import numpy as np

from connectors.process.compiled import compiled, inlined
from connectors.process.template import over
from pipeline.reading.columns import REMOVAL, Hashes
from pipeline.residency.changes import CHANGE, ChangeRows
from pipeline.residency.counting import count_copies as counting
from pipeline.residency.counting.block_entries import MAX_DEPTH, Entries, fetch_slots, find_entry, remove
from pipeline.residency.counting.content_chain import UNKNOWN, follow
from pipeline.residency.counting.count_copies import Copy
from pipeline.residency.histogram import bucket_of
from schemas.residency import EVICTED, FILLED, GENERATED

DECODING_SECONDS: Final = 4.0
"""A block that is announced alone this soon after the one before it may have been completed by decoding."""
DECODED_TOKENS: Final = 128
"""Of a block: decoding more takes longer on most engines, so what comes so soon was rather a prompt's."""


class Blocks(NamedTuple):
    """The arrays of a `BlockTable`, which keeps contents if there are links, and room for changes."""

    entries: Entries
    contents: Hashes
    found: ChangeRows


class Where(NamedTuple):
    """How a `BlockTable` spreads its entries, and how many it has room for."""

    spread: np.uint64
    room: int


class Chain(NamedTuple):
    """What is known of a chain; all of it 0 where nothing is."""

    root: np.uint64
    depth: int
    """Of the block of operation 0, if it were in the chain."""
    content: np.uint64
    """Content hash of the block before, or of the one that the loop is at."""
    known: bool
    """Whether that is known: before the start of a chain it is, and is 0."""
    kind: int
    """Kind of the change if the block becomes resident."""


def room_for(operations: int) -> ChangeRows:
    """Return room for the changes of this many operations; the progress records how much is used."""
    return np.empty(operations, CHANGE)


@inlined
def fetch(store: Blocks, pool: Where, block: np.uint64) -> None:
    fetch_slots(store.entries, pool.spread, block)


@inlined
def find(store: Blocks, pool: Where, block: np.uint64) -> int:
    return find_entry(store.entries, block, pool.spread)


@inlined
def held_at(store: Blocks, pool: Where, slot: int) -> Any:
    return store.entries[slot]


@inlined
def _content_after(content: np.uint64, known: bool, links: Hashes, at: int) -> np.uint64:
    """Return the content hash of the block after one with this `content`, if that is known; else UNKNOWN."""
    after: np.uint64 = UNKNOWN
    if known and len(links) > 0 and links[at] != UNKNOWN:
        after = follow(content, links[at])
    return after


@inlined
def chain_of(
    store: Blocks, pool: Where, rules: Any, events: Any, event: int, start: int, operation: int
) -> Chain:
    entries, contents, hashes, links = store.entries, store.contents, events.hashes, events.links
    row = events.rows[event]
    linked = len(links) > 0
    root, before = np.uint64(0), np.int64(0)
    content, known = UNKNOWN, False
    kind = FILLED
    if rules.chained and row.block_size != REMOVAL and operation < start + row.hashes:
        if row.parent == 0:
            root, known = hashes[start], linked
            if linked and links[start] != UNKNOWN:
                root = follow(UNKNOWN, links[start])
        else:
            above = find_entry(entries, row.parent, pool.spread)
            parent = entries[above]
            if parent.copies != 0:
                root, before = parent.root, np.int64(parent.depth)
                soon = row.time - parent.birth <= DECODING_SECONDS
                if rules.decodes_singly and soon and row.hashes == 1 and row.block_size <= DECODED_TOKENS:
                    kind = GENERATED
                if len(contents) > 0:
                    content = contents[above]
                    known = content != UNKNOWN
        if len(contents) > 0:
            for done in range(start, operation):  # before the loop returned to the interpreter
                content = _content_after(content, known, links, done)
                if content == UNKNOWN:
                    content = contents[find_entry(entries, hashes[done], pool.spread)]
                known = content != UNKNOWN
    return Chain(root, before - start + 1, content, known, kind)


@inlined
def reaches(store: Blocks, rules: Any, chain: Chain, events: Any, operation: int) -> Chain:
    if len(store.contents) > 0:
        content, links = UNKNOWN, events.links
        if rules.chained:
            content = _content_after(chain.content, chain.known, links, operation)
        elif len(links) > 0:
            content = links[operation]
        chain = Chain(chain.root, chain.depth, content, content != UNKNOWN, chain.kind)
    return chain


@inlined
def goes_on(store: Blocks, chain: Chain, slot: int) -> Chain:
    if len(store.contents) > 0 and not chain.known:
        content = store.contents[slot]
        chain = Chain(chain.root, chain.depth, content, content != UNKNOWN, chain.kind)
    return chain


@inlined
def first(store: Blocks, pool: Where, slot: int, chain: Chain, copy: Copy, tally: Any, events: Any) -> bool:
    reached, row, block = tally.progress[0], events.rows[copy.event], events.hashes[copy.operation]
    there_is_room: bool = reached.live < pool.room
    if there_is_room:
        reached.live += 1
        entry: Any = store.entries[slot]
        entry.hash = block
        entry.birth = row.time
        entry.copies = 1
        entry.size_code = copy.size_code
        entry.several_sizes = 0
        entry.root = chain.root
        entry.depth = 0 if chain.root == 0 else min(chain.depth + copy.operation, MAX_DEPTH)
        kept = len(store.contents) > 0
        if kept:
            store.contents[slot] = chain.content
            if chain.content == UNKNOWN:
                told = len(events.links) > 0 and events.links[copy.operation] != UNKNOWN
                reached.parent_unknown += told
                reached.not_told += not told
        change = _change(store, reached, chain.kind, row, copy)
        change.by_content = kept and chain.content != UNKNOWN
        change.hash = chain.content if change.by_content else block
        change.root = chain.root
        change.depth = entry.depth
        change.adapter = row.adapter
    return there_is_room


@inlined
def _change(store: Blocks, reached: Any, kind: int, row: Any, copy: Copy) -> Any:
    """Return one more change, complete except for its hash and what only fills have."""
    change: Any = store.found[reached.changes]
    reached.changes += 1
    change.kind = kind
    change.time = row.time
    change.block_size = copy.tokens
    change.stored = copy.stored
    return change


@inlined
def add(store: Blocks, slot: int, entry: Any, copies: int) -> None:
    entry.copies += copies


@inlined
def last(store: Blocks, pool: Where, slot: int, entry: Any, copy: Copy, tally: Any, events: Any) -> None:
    reached, row = tally.progress[0], events.rows[copy.event]
    reached.live -= 1
    tally.lifetimes[bucket_of(row.time - entry.birth)] += 1
    change = _change(store, reached, EVICTED, row, copy)
    change.by_content = len(store.contents) > 0 and store.contents[slot] != UNKNOWN
    change.hash = store.contents[slot] if change.by_content else events.hashes[copy.operation]
    remove(store.entries, slot, (pool.spread, store.contents))


count_copies = compiled(over(counting.count, "count_copies", globals()))
"""The loop over the verbs above."""
