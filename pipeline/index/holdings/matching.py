"""The compiled walk along a chain of blocks: how much of its beginning each source holds, tier by tier."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from connectors.process.compiled import borrowed, compiled, fetch_ahead, inlined
from pipeline.index.holdings.counting import Table
from pipeline.index.holdings.rows import FETCHED_AHEAD, Spread, fetch_row, find
from pipeline.index.holdings.sets import Words, count_of
from pipeline.index.holdings.words import MOST_POOLS, NOTHING, OFFSET_MASK, pool_of, size_code_of
from pipeline.reading.columns import Hashes

I32 = npt.NDArray[np.int32]
I64 = npt.NDArray[np.int64]

NOBODY: Final = -1
"""Instead of a number: none."""
GPU, CPU, DISK = 0, 1, 2
"""Tiers, in the order in which an engine looks."""
WHOLE: Final = 0
"""Window of a group that needs every block of the prefix."""
LAST_BLOCK: Final = -1
"""Window of a group that needs the last block of the prefix only, as Mamba's state."""
UNTOLD: Final = -2
"""Window of a group that looks back a part of the prefix, and nobody says how much of it."""
NOT_NAMED: Final = -3
"""Window of a group whose kind nobody names: WHOLE if it is the only one of its tier, UNTOLD otherwise."""
LEAVE_UNSAID: Final = 1
IN_CHUNKS: Final = 2
"""Doubts about a block that a pool holds, as bits: it may have left unsaid; an engine that loads whole chunks
may hold only a part of its chunk."""

POOL: Final = np.dtype(
    [
        ("source", np.int32),  # its number, NOBODY if no source has the pool any more
        ("next", np.int32),  # the next pool of the source
        ("window", np.int32),  # tokens, WHOLE or LAST_BLOCK
        ("group", np.int32),
        ("sizes", np.int64),  # where the sizes of its size codes are
        ("size_codes", np.int64),  # how many of these it has
        ("tier", np.int8),
        ("doubts", np.int8),  # about the blocks that it holds
    ]
)
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
        ("most", np.int32),
        ("most_tokens", np.int64),
        ("doubts", np.int8),
    ]
)
"""How far into the chain a source goes, in blocks and tokens: on its GPU, then on its CPU as well, then on
what is below. `most`: how far at the most, if groups that do not say how far they look back need no
more than they hold. `doubts`: those about any block of what it goes on."""

_SIX = 6
_IN_WORD = 63
_ALL = ~np.uint64(0)


class Pools(NamedTuple):
    """What is known of pools and sources, by their numbers."""

    pools: npt.NDArray[Any]
    """(pools,) of POOL."""
    sources: npt.NDArray[Any]
    """(sources,) of SOURCE."""
    sizes: I64
    """Tokens per block; the sizes of a pool side by side."""


class Beside(NamedTuple):
    """k holders of blocks that the table does not know, chain by chain."""

    chains: I64
    pools: I64
    places: I64
    """Which block of the chain."""
    sizes: I64


class Scratch(NamedTuple):
    """What a walk notes; marks are NOBODY before and after."""

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
    """(blocks,): what the row of each block says."""
    matches: npt.NDArray[Any]
    """(most,) of MATCH."""


@inlined
def _has(masks: Any, words: int, local: int, at: int) -> bool:
    there: bool = (masks[local * words + (at >> _SIX)] >> np.uint64(at & _IN_WORD)) & np.uint64(1) != NOTHING
    return there


@inlined
def _leading(masks: Any, words: int, local: int, begin: int, end: int) -> int:
    """Return where the bits of a mask that are set from `begin` on end."""
    at, going = begin, True
    while going and at < end:
        left = masks[local * words + (at >> _SIX)] >> np.uint64(at & _IN_WORD)
        if left == _ALL >> np.uint64(at & _IN_WORD):
            at = (at | _IN_WORD) + 1
        else:
            while left & np.uint64(1) != NOTHING:
                left >>= np.uint64(1)
                at += 1
            going = False
    return min(at, end)


@compiled
def match(
    table: Table,
    spread: Spread,
    known: Pools,
    allowed: Any,
    hashes: Hashes,
    ends: I64,
    beside: Beside,
    default_size: int,
    scratch: Scratch,
) -> int:
    """Note the sources that hold a beginning of each chain, chain by chain; return how many there are.

    Chains lie side by side in `hashes`; `ends` says where each one ends. `allowed` says of each scope whether
    it is asked for. A block of which nobody says a size has `default_size`, or else that of the chain's
    largest block. Returns -1 if the scratch has no room.
    """
    table, known, scratch = borrowed(table), borrowed(known), borrowed(scratch)
    beside = borrowed(beside)
    matches = scratch.matches
    matched = begin = known_beside = 0
    for chain in range(len(ends)):
        of_chain = known_beside
        while known_beside < len(beside.chains) and beside.chains[known_beside] == chain:
            known_beside += 1
        its_beside = Beside(
            beside.chains[of_chain:known_beside],
            beside.pools[of_chain:known_beside],
            beside.places[of_chain:known_beside],
            beside.sizes[of_chain:known_beside],
        )
        found = _match_one(
            table,
            spread,
            known,
            allowed,
            hashes[begin : ends[chain]],
            its_beside,
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
    """Note what the row of each block says; the sets that they name are in the cache soon."""
    rows, heap = table.rows, table.heap
    for at in range(min(FETCHED_AHEAD, len(hashes))):
        fetch_row(rows, spread, hashes[at])
    for at in range(len(hashes)):
        if at + FETCHED_AHEAD < len(hashes):
            fetch_row(rows, spread, hashes[at + FETCHED_AHEAD])
        word = words[at] = rows[find(rows, spread, hashes[at])].word
        if pool_of(word) == MOST_POOLS:
            fetch_ahead(heap, np.int64(word & OFFSET_MASK))


@compiled
def _match_one(
    table: Table,
    spread: Spread,
    known: Pools,
    allowed: Any,
    hashes: Hashes,
    beside: Beside,
    default_size: int,
    scratch: Scratch,
    matches: Any,
) -> int:
    """Fill `matches` with the sources that hold a beginning of a chain; return how many there are, or -1."""
    table, known, scratch = borrowed(table), borrowed(known), borrowed(scratch)
    beside = borrowed(beside)
    heap = table.heap
    pools, sources, pool_sizes = known.pools, known.sources, known.sizes
    marks, source_marks, found = scratch.pool_marks, scratch.source_marks, scratch.found
    masks, tokens, holders = scratch.masks, scratch.tokens, scratch.holders
    blocks = len(hashes)
    words = (blocks + _IN_WORD) >> _SIX
    most = min(len(found), len(masks) // max(words, 1), len(matches))
    count = 0
    full = False
    # Of these types, as numba compiles `_end` again for each constant that it is given.
    none, no, yes = np.int64(0), np.bool_(False), np.bool_(True)
    _words_of(table, spread, hashes, holders)
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
                if count == most:
                    full = True
                    break
                local = marks[number] = count
                found[count] = number
                masks[count * words : (count + 1) * words] = NOTHING
                count += 1
            masks[local * words + (at >> _SIX)] |= np.uint64(1) << np.uint64(at & _IN_WORD)
            tokens[at + 1] = max(tokens[at + 1], pool_sizes[pool.sizes + size_code_of(holder)])
    for at in range(len(beside.pools)):
        number, place = beside.pools[at], beside.places[at]
        local = marks[number]
        if local == NOBODY:
            if count == most:
                full = True
                break
            local = marks[number] = count
            found[count] = number
            masks[count * words : (count + 1) * words] = NOTHING
            count += 1
        masks[local * words + (place >> _SIX)] |= np.uint64(1) << np.uint64(place & _IN_WORD)
        tokens[place + 1] = max(tokens[place + 1], beside.sizes[at])
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
        for index in range(count):
            source = pools[found[index]].source
            if source_marks[source] != NOBODY:
                continue
            source_marks[source] = 1
            row, first = matches[matched], sources[source].first
            row.source, row.doubts = source, 0
            reached = most = none
            for tier in range(GPU, DISK + 1):
                begin = reached
                reached = _end(
                    pools, pool_sizes, first, marks, masks, words, blocks, tier, begin, block_size, no
                )
                if reached > begin:
                    row.doubts |= _doubts(pools, first, marks, masks, words, tier, begin, reached)
                if tier == GPU:
                    row.gpu = reached
                elif tier == CPU:
                    row.cpu = reached
            row.disk = reached
            if _any_untold(pools, first):
                for tier in range(GPU, DISK + 1):
                    most = _end(
                        pools, pool_sizes, first, marks, masks, words, blocks, tier, most, block_size, yes
                    )
            most = max(most, reached)
            row.gpu_tokens, row.cpu_tokens = tokens[row.gpu], tokens[row.cpu]
            row.disk_tokens = tokens[row.disk]
            row.most, row.most_tokens = most, tokens[most]
            if most > 0:
                matched += 1
    for index in range(count):
        source_marks[pools[found[index]].source] = NOBODY
        marks[found[index]] = NOBODY
    return -1 if full else matched


@inlined
def _announced(pools: Any, sizes: Any, number: int, block_size: int) -> bool:
    """Return whether blocks of a size ever came to a pool."""
    at = pools[number].sizes
    end = at + pools[number].size_codes
    while at < end and sizes[at] != block_size:
        at += 1
    there: bool = at < end
    return there


@inlined
def _on_gpu(pools: Any, first: int, number: int) -> int:
    """Return the pool of the GPU for the group of a pool, NOBODY if there is none."""
    other = first
    while other != NOBODY and not (pools[other].tier == GPU and pools[other].group == pools[number].group):
        other = pools[other].next
    return other


@compiled
def _would_have_a_say(pools: Any, sizes: Any, first: int, number: int, block_size: int) -> bool:
    """Return whether a pool that holds nothing of a chain is one that its blocks come to.

    Groups whose blocks have another size than the chain's have other hashes. A pool that does not say the
    size of its blocks has that of its group on the GPU.
    """
    if block_size <= 0:
        return False
    if _announced(pools, sizes, number, block_size):
        return True
    gpu = _on_gpu(pools, first, number)
    return gpu != NOBODY and _announced(pools, sizes, number, 0) and _announced(pools, sizes, gpu, block_size)


@compiled
def _window(pools: Any, first: int, number: int) -> int:
    """Return the window of a pool's group, which its pool of the GPU may say alone."""
    window: int = pools[number].window
    if window == NOT_NAMED and pools[number].tier != GPU:
        gpu = _on_gpu(pools, first, number)
        if gpu != NOBODY:
            window = pools[gpu].window
    if window == NOT_NAMED:
        window, other = WHOLE, first
        while window == WHOLE and other != NOBODY:
            if pools[other].tier == pools[number].tier and pools[other].group != pools[number].group:
                window = UNTOLD
            other = pools[other].next
    return window


@compiled
def _any_untold(pools: Any, first: int) -> bool:
    """Return whether a source has groups that do not say how far they look back."""
    number = first
    while number != NOBODY and _window(pools, first, number) != UNTOLD:
        number = pools[number].next
    untold: bool = number != NOBODY
    return untold


@inlined
def _last(masks: Any, words: int, local: int, blocks: int) -> int:
    """Return where the last block of a mask ends, 0 if it has none."""
    at = blocks
    while at > 0 and not _has(masks, words, local, at - 1):
        at -= 1
    return at


@inlined
def _nowhere(pools: Any, first: int, number: int, marks: Any) -> bool:
    """Return whether the group of a pool holds nothing of a chain on the pool's tier."""
    other = first
    while other != NOBODY and not (
        marks[other] != NOBODY
        and pools[other].tier == pools[number].tier
        and pools[other].group == pools[number].group
    ):
        other = pools[other].next
    nowhere: bool = other == NOBODY
    return nowhere


@compiled
def _elsewhere(pools: Any, first: int, number: int, marks: Any, masks: Any, words: int, at: int) -> bool:
    """Return whether the group of a pool has a block on another medium below the CPU."""
    here, other = False, first
    while not here and other != NOBODY:
        here = (
            other != number
            and pools[other].tier == DISK
            and pools[other].group == pools[number].group
            and marks[other] != NOBODY
            and _has(masks, words, marks[other], at)
        )
        other = pools[other].next
    return here


@compiled
def _end(
    pools: Any,
    sizes: Any,
    first: int,
    marks: Any,
    masks: Any,
    words: int,
    blocks: int,
    tier: int,
    begin: int,
    block_size: int,
    at_most: np.bool_,
) -> int:
    """Return how many blocks of the beginning an engine can use if `begin` of them are on the tiers above.

    Each group that has a say on the tier has there what its attention looks at behind these. Groups that do
    not say how far they look back need all; `at_most`, none, or where there are no others, their last block.
    """
    reached, any_group, windows, untold_end = blocks, False, False, begin
    number = first
    while number != NOBODY:
        local = marks[number]
        if pools[number].tier == tier and (
            local != NOBODY or _would_have_a_say(pools, sizes, first, number, block_size)
        ):
            window = _window(pools, first, number)
            if at_most and window == UNTOLD:
                if local != NOBODY:
                    untold_end = max(untold_end, _last(masks, words, local, blocks))
            elif window != WHOLE and window != UNTOLD:
                any_group = windows = True
            else:
                any_group = True
                at = begin
                if local != NOBODY:
                    at = _leading(masks, words, local, at, reached)
                while (
                    tier == DISK
                    and at < reached
                    and _elsewhere(pools, first, number, marks, masks, words, at)
                ):
                    at += 1
                    if local != NOBODY:
                        at = _leading(masks, words, local, at, reached)
                reached = at
        number = pools[number].next
    if not any_group:
        return untold_end
    settled = not windows
    while not settled and reached > begin:
        settled = True
        number = first
        while number != NOBODY:
            local, window = marks[number], WHOLE
            if pools[number].tier == tier and (
                local != NOBODY or _would_have_a_say(pools, sizes, first, number, block_size)
            ):
                window = _window(pools, first, number)
            if window in (WHOLE, UNTOLD):
                pass
            elif local == NOBODY and _nowhere(pools, first, number, marks):
                reached = begin
            else:
                needed = 1
                if window > 1 and block_size > 0:
                    needed = (window - 1 + block_size - 1) // block_size
                needed_from = max(begin, reached - needed)
                at = reached - 1
                while at >= needed_from and (
                    (local != NOBODY and _has(masks, words, local, at))
                    or (tier == DISK and _elsewhere(pools, first, number, marks, masks, words, at))
                ):
                    at -= 1
                if at >= needed_from:
                    # No prefix that ends behind the missing block has a whole window before the end.
                    reached, settled = at, False
            number = pools[number].next
    return reached


@compiled
def _doubts(
    pools: Any, first: int, marks: Any, masks: Any, words: int, tier: int, begin: int, end: int
) -> int:
    """Return the doubts about these blocks on a tier."""
    doubts = 0
    number = first
    while number != NOBODY:
        if pools[number].tier == tier and pools[number].doubts != 0 and marks[number] != NOBODY:
            at = begin
            while at < end and not _has(masks, words, marks[number], at):
                at += 1
            if at < end:
                doubts |= pools[number].doubts
        number = pools[number].next
    return doubts
