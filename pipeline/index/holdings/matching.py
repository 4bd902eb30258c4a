"""The compiled walk along a chain of blocks: how much of its beginning each source holds, tier by tier."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from connectors.process.compiled import borrowed, compiled, fetch_ahead
from pipeline.index.holdings.counting import Table
from pipeline.index.holdings.rows import FETCHED_AHEAD, Spread, fetch_row, find_row
from pipeline.index.holdings.sets import Words, count_of
from pipeline.index.holdings.usable import (
    CPU,
    DISK,
    GPU,
    IN_WORD,
    NOBODY,
    SIX,
    any_unknown_window,
    doubts_about,
    usable_end,
)
from pipeline.index.holdings.words import MOST_POOLS, NOTHING, OFFSET_MASK, pool_of, size_code_of
from pipeline.reading.columns import Hashes

I32 = npt.NDArray[np.int32]
I64 = npt.NDArray[np.int64]

SOURCE: Final = np.dtype([("first", np.int32), ("scope", np.int32)])
"""The first of its pools, and the number of its model and hash domain."""
MATCH: Final = np.dtype(
    [
        ("chain", np.int32),  # which of those asked
        ("source", np.int32),
        ("gpu", np.int32),
        ("cpu", np.int32),
        ("disk", np.int32),
        ("gpu_tokens", np.int64),
        ("cpu_tokens", np.int64),
        ("disk_tokens", np.int64),
        ("at_most", np.int32),
        ("at_most_tokens", np.int64),
        ("doubts", np.int8),
    ]
)
"""How far into the chain a source reaches, in blocks and tokens: on its GPU, then with its CPU as well, then
with what is below. `at_most`: how far, if groups whose window is unknown need no more than they hold.
`doubts`: those about any block that it reaches."""


class Pools(NamedTuple):
    """What is known about pools and sources, by their numbers."""

    pools: npt.NDArray[Any]
    """(pools,) of `usable.POOL`."""
    sources: npt.NDArray[Any]
    """(sources,) of SOURCE."""
    sizes: I64
    """Tokens per block; those of a pool one after another."""


class ExtraHolders(NamedTuple):
    """Columns of (k,): holders of blocks that are not in the table, chain by chain."""

    chains: I64
    pools: I64
    places: I64
    """Which block of the chain."""
    sizes: I64


class Scratch(NamedTuple):
    """Working memory of a walk; marks are NOBODY before and after."""

    pool_marks: I32
    """(pools,)"""
    source_marks: I32
    """(sources,)"""
    found: I32
    """(most,): numbers of the pools that hold a block."""
    masks: Words
    """(most * words,): one bit for each block of the chain."""
    tokens: I64
    """(blocks + 1,)"""
    holders: Words
    """(blocks,): the word in each block's row."""
    matches: npt.NDArray[Any]
    """(most,) of MATCH."""


@compiled
def match(
    table: Table,
    spread: Spread,
    known: Pools,
    allowed: Any,
    hashes: Hashes,
    ends: I64,
    extra: ExtraHolders,
    default_size: int,
    scratch: Scratch,
) -> int:
    """Write the sources that hold a beginning of each chain to `scratch.matches`; return how many there are.

    Chains lie one after another in `hashes`, each up to its end in `ends`. `allowed` is a mask over scopes:
    which are asked for. A block whose size no holder gives has `default_size` or, if that is 0, the size of
    the chain's largest block. Return -1 if the scratch has no room.
    """
    table, known, scratch = borrowed(table), borrowed(known), borrowed(scratch)
    extra = borrowed(extra)
    matches = scratch.matches
    matched = begin = known_extra = 0
    for chain in range(len(ends)):
        of_chain = known_extra
        while known_extra < len(extra.chains) and extra.chains[known_extra] == chain:
            known_extra += 1
        its_holders = ExtraHolders(
            extra.chains[of_chain:known_extra],
            extra.pools[of_chain:known_extra],
            extra.places[of_chain:known_extra],
            extra.sizes[of_chain:known_extra],
        )
        found = _match_one(
            table,
            spread,
            known,
            allowed,
            hashes[begin : ends[chain]],
            its_holders,
            default_size,
            scratch,
            matches[matched:],
        )
        if found < 0:
            return -1
        for at in range(matched, matched + found):
            matches[at].chain = chain
        matched += found
        begin = ends[chain]
    return matched


@compiled
def _words_of(table: Table, spread: Spread, hashes: Hashes, words: Words) -> None:
    """Copy the word of each block's row to `words`, and prefetch the sets that these refer to."""
    rows, heap = table.rows, table.heap
    for at in range(min(FETCHED_AHEAD, len(hashes))):
        fetch_row(rows, spread, hashes[at])
    for at in range(len(hashes)):
        if at + FETCHED_AHEAD < len(hashes):
            fetch_row(rows, spread, hashes[at + FETCHED_AHEAD])
        word = words[at] = rows[find_row(rows, hashes[at], spread)].word
        if pool_of(word) == MOST_POOLS:
            fetch_ahead(heap, np.int64(word & OFFSET_MASK))


@compiled
def _match_one(
    table: Table,
    spread: Spread,
    known: Pools,
    allowed: Any,
    hashes: Hashes,
    extra: ExtraHolders,
    default_size: int,
    scratch: Scratch,
    matches: Any,
) -> int:
    """Fill `matches` with the sources that hold a beginning of a chain; return how many there are, or -1."""
    table, known, scratch = borrowed(table), borrowed(known), borrowed(scratch)
    extra = borrowed(extra)
    heap = table.heap
    pools, sources, pool_sizes = known.pools, known.sources, known.sizes
    marks, source_marks, found = scratch.pool_marks, scratch.source_marks, scratch.found
    masks, tokens, holders = scratch.masks, scratch.tokens, scratch.holders
    blocks = len(hashes)
    words = (blocks + IN_WORD) >> SIX
    room = min(len(found), len(masks) // max(words, 1), len(matches))
    count = 0
    full = False
    # Typed, because numba compiles `usable_end` again for every literal that it is given.
    none, no, yes = np.int64(0), np.bool_(False), np.bool_(True)
    _words_of(table, spread, hashes, holders)
    # Who holds each block, in the table.
    tokens[0] = 0
    for at in range(blocks):
        tokens[at + 1] = 0
        word = holders[at]
        if word == NOTHING:
            continue
        in_set = pool_of(word) == MOST_POOLS
        begin = np.int64(word & OFFSET_MASK) + 1 if in_set else 0
        end = begin + count_of(heap, begin - 1) if in_set else 1
        for place in range(begin, end):
            holder = heap[place] if in_set else word
            number = pool_of(holder)
            pool = pools[number]
            if pool.source == NOBODY or not allowed[sources[pool.source].scope]:
                continue
            local = marks[number]
            if local == NOBODY:
                if count == room:
                    full = True
                    break
                local = marks[number] = count
                found[count] = number
                masks[count * words : (count + 1) * words] = NOTHING
                count += 1
            masks[local * words + (at >> SIX)] |= np.uint64(1) << np.uint64(at & IN_WORD)
            tokens[at + 1] = max(tokens[at + 1], pool_sizes[pool.sizes + size_code_of(holder)])
    # Who holds which, outside of it.
    for at in range(len(extra.pools)):
        number, place = extra.pools[at], extra.places[at]
        local = marks[number]
        if local == NOBODY:
            if count == room:
                full = True
                break
            local = marks[number] = count
            found[count] = number
            masks[count * words : (count + 1) * words] = NOTHING
            count += 1
        masks[local * words + (place >> SIX)] |= np.uint64(1) << np.uint64(place & IN_WORD)
        tokens[place + 1] = max(tokens[place + 1], extra.sizes[at])
    matched = 0
    if not full:
        largest = 0
        for at in range(1, blocks + 1):
            largest = max(largest, tokens[at])
        if default_size <= 0:
            default_size = largest
        for at in range(1, blocks + 1):
            tokens[at] = tokens[at - 1] + (tokens[at] if tokens[at] > 0 else default_size)
        block_size = largest if largest > 0 else default_size
        # How far each source reaches, tier by tier.
        for index in range(count):
            source = pools[found[index]].source
            if source_marks[source] != NOBODY:
                continue
            source_marks[source] = 1
            row, first = matches[matched], sources[source].first
            row.source, row.doubts = source, 0
            reached = farthest = none
            for tier in range(GPU, DISK + 1):
                begin = reached
                reached = usable_end(
                    pools, pool_sizes, first, marks, masks, words, blocks, tier, begin, block_size, no
                )
                if reached > begin:
                    row.doubts |= doubts_about(pools, first, marks, masks, words, tier, begin, reached)
                if tier == GPU:
                    row.gpu = reached
                elif tier == CPU:
                    row.cpu = reached
            row.disk = reached
            if any_unknown_window(pools, first):
                for tier in range(GPU, DISK + 1):
                    farthest = usable_end(
                        pools, pool_sizes, first, marks, masks, words, blocks, tier, farthest, block_size, yes
                    )
            farthest = max(farthest, reached)
            row.gpu_tokens, row.cpu_tokens = tokens[row.gpu], tokens[row.cpu]
            row.disk_tokens = tokens[row.disk]
            row.at_most, row.at_most_tokens = farthest, tokens[farthest]
            if farthest > 0:
                matched += 1
    for index in range(count):
        source_marks[pools[found[index]].source] = NOBODY
        marks[found[index]] = NOBODY
    return -1 if full else matched
