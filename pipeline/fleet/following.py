"""The compiled loop that follows changes of residency: holders, losses, and the cause of every fill."""

from __future__ import annotations

import math
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from pipeline.compiled import compiled
from pipeline.fleet.causes import (
    CLEARED_BEFORE,
    COLD,
    EVICTED_ELSEWHERE,
    EVICTED_HERE,
    NEEDED_BUCKETS,
    PEER,
    PEER_AND_EVICTED,
    PROMOTED,
    REANNOUNCED,
    UNKNOWN,
)
from pipeline.fleet.index import (
    ANNOUNCED,
    F64,
    GHOST,
    I64,
    STORE_ONLY_BIT,
    U8,
    U16,
    U32,
    U64,
    Blocks,
    Losses,
    Pairs,
    find_block,
    find_pair,
    free_block,
    free_pair,
)
from pipeline.fleet.refills import USED, Refills, count_refill
from pipeline.residency.histogram import BUCKETS, SMALLEST_EXPONENT
from pipeline.residency.windows import WINDOW_SECONDS
from schemas.residency import CLEARED, EVICTED, FILLED

NO_WINDOW: Final = -(1 << 62)
GPU: Final = 0
"""Bit of the medium whose fills and losses are what this is about."""

DONE: Final = 0
CLOCK_MOVED: Final = 1
"""The next change begins a window of the shard."""
CELL_MOVED: Final = 2
"""The next change begins a window of its cell."""
REFILLS_FULL: Final = 3
"""There may be no counter for the refills of the next change."""

HEAD: Final = 0
TAIL: Final = 1
USED_BLOCKS: Final = 2
USED_PAIRS: Final = 3
WINDOW: Final = 4
GHOSTS: Final = 5
UNMATCHED: Final = 6
COUNTERS: Final = 7


class Changes(NamedTuple):
    """n changes in the order in which they count."""

    keys: U64
    """Of blocks, as `keys.keys_of` makes them."""
    kinds: U8
    times: F64
    sizes: U32
    stored: I64
    """Tokens stored in the pool before the change; -1 unknown."""
    pieces: npt.NDArray[np.int32]
    """Which piece each change belongs to."""
    roots: U64
    """First block of the filled block's chain; 0 where not known."""
    depths: U16
    """Blocks of the chain up to and including it."""
    lineages: U16
    """Number of the chain's hash domain, group and LoRA."""


class Pieces(NamedTuple):
    """What the changes of one source and pool in a record have in common."""

    sources: U16
    lives: U16
    bits: U8
    """Bit number of the medium: STORE_ONLY_BIT and above where removals are not announced."""
    trusts: U8
    medium_keys: U64
    """Added to a block's key for its entry of this medium."""
    gauges: npt.NDArray[np.int32]
    cells: npt.NDArray[np.int32]
    unsure_until: F64
    """What the source had lost before this event time may not be known."""
    alone: U8
    """1: whether the source's hashes compare with those of others is in doubt."""


class Cells(NamedTuple):
    """Open window of each (source, hash domain, group)."""

    windows: I64
    versions: I64
    trusts: U8
    dirty: U8
    blocks: npt.NDArray[np.int64]
    """(cells, causes)"""
    tokens: npt.NDArray[np.int64]
    regret: npt.NDArray[np.int64]
    """(cells, BUCKETS)"""
    needed: npt.NDArray[np.int64]
    """(cells, NEEDED_BUCKETS), tokens."""


class Gauges(NamedTuple):
    """Redundancy of each (hash domain, group, medium) as it is."""

    owners: npt.NDArray[np.int64]
    """(gauges, 5): blocks with 1, 2, 3, 4-7, 8 and more owners."""
    unique: I64
    """Tokens."""
    physical: I64
    """Tokens."""
    versions: I64
    dirty: U8


class Clock(NamedTuple):
    """Counters and scalars that the loop moves."""

    counters: I64
    """By HEAD, TAIL, USED_BLOCKS, ..., UNMATCHED."""
    time: F64
    """One element: the latest event time seen."""
    pairs_of_source: I64
    """Pairs in the table, per source."""
    clears_of_source: I64
    """Per source, the number of the first loss after the last one by a clear."""


@compiled
def _owners_class(owners: int) -> int:
    if owners < 4:
        return owners - 1
    return 3 if owners < 8 else 4


@compiled
def _count_owners(gauges: Gauges, gauge: int, before: int, after: int, size: int, version: int) -> None:
    if before > 0:
        gauges.owners[gauge, _owners_class(before)] -= 1
    else:
        gauges.unique[gauge] += size
    if after > 0:
        gauges.owners[gauge, _owners_class(after)] += 1
    else:
        gauges.unique[gauge] -= size
    gauges.physical[gauge] += (after - before) * size
    gauges.versions[gauge] = version
    gauges.dirty[gauge] = 1


@compiled
def _log2_bucket(seconds: float) -> int:
    """As `pipeline.residency.histogram.bucket_of`."""
    if seconds <= 0.0:
        return 0
    _, exponent = math.frexp(seconds)
    return min(max(exponent - SMALLEST_EXPONENT, 0), BUCKETS - 1)


@compiled
def _needed_bucket(tokens: int) -> int:
    """Return the least k with tokens <= 2**k."""
    bucket = 0
    while bucket < NEEDED_BUCKETS - 1 and (np.int64(1) << bucket) < tokens:
        bucket += 1
    return bucket


@compiled
def _free_if_unused(blocks: Blocks, slot: int, counters: I64) -> None:
    if (
        blocks[slot].owners == 0
        and blocks[slot].holders == 0
        and blocks[slot].evicted == 0
        and blocks[slot].cleared == 0
    ):
        free_block(blocks, slot)
        counters[USED_BLOCKS] -= 1


@compiled
def _block(blocks: Blocks, key: np.uint64, size: int, counters: I64) -> int:
    """Return the slot of a block, a new one if it has none."""
    slot = find_block(blocks, key)
    if slot >= 0:
        return slot
    slot = -1 - slot
    blocks[slot].key = key
    blocks[slot].owners = 0
    blocks[slot].holders = 0
    blocks[slot].evicted = 0
    blocks[slot].cleared = 0
    blocks[slot].size = size
    blocks[slot].evicted_at = 0.0
    blocks[slot].root = 0
    counters[USED_BLOCKS] += 1
    return slot


@compiled
def _forget_ghost(blocks: Blocks, block: int, cleared: bool, counters: I64) -> None:
    """Take a ghost off its block's counts."""
    if cleared:
        blocks[block].cleared -= 1
    else:
        blocks[block].evicted -= 1
    counters[GHOSTS] -= 1


@compiled
def _free_pair(pairs: Pairs, pair: int, clock: Clock) -> None:
    clock.pairs_of_source[pairs[pair].source] -= 1
    clock.counters[USED_PAIRS] -= 1
    free_pair(pairs, pair)


@compiled
def _drop_oldest_loss(blocks: Blocks, pairs: Pairs, losses: Losses, clock: Clock) -> None:
    counters = clock.counters
    number = counters[HEAD]
    counters[HEAD] += 1
    slot = number & (len(losses) - 1)
    pair = find_pair(pairs, losses[slot].key, losses[slot].source)
    if pair < 0 or not pairs[pair].media & GHOST or pairs[pair].position != np.uint32(number & 0xFFFFFFFF):
        return
    pairs[pair].media &= 0xFFFF ^ GHOST
    if pairs[pair].media == 0:
        _free_pair(pairs, pair, clock)
    block = find_block(blocks, losses[slot].key)
    _forget_ghost(blocks, block, losses[slot].cleared != 0, counters)
    _free_if_unused(blocks, block, counters)


@compiled
def _lost(
    blocks: Blocks,
    pairs: Pairs,
    losses: Losses,
    clock: Clock,
    pair: int,
    block: int,
    changes: Changes,
    at: int,
    life: int,
    ghosts: int,
) -> None:
    """Remember that the pair's source lost the block from its GPU."""
    counters = clock.counters
    cleared = changes.kinds[at] == CLEARED
    # First, so that the block stays in its table while older losses of it are dropped.
    if cleared:
        blocks[block].cleared += 1
    else:
        blocks[block].evicted += 1
        blocks[block].evicted_at = changes.times[at]
    while counters[TAIL] - counters[HEAD] >= ghosts:
        return_to = pairs[pair].key
        source = pairs[pair].source
        _drop_oldest_loss(blocks, pairs, losses, clock)
        # Slots may have moved.
        pair = find_pair(pairs, return_to, source)
    number = counters[TAIL]
    counters[TAIL] += 1
    slot = number & (len(losses) - 1)
    losses[slot].key = pairs[pair].key
    losses[slot].source = pairs[pair].source
    losses[slot].life = life
    losses[slot].cleared = 1 if cleared else 0
    losses[slot].time = changes.times[at]
    losses[slot].stored = changes.stored[at]
    pairs[pair].media |= GHOST
    pairs[pair].position = np.uint32(number & 0xFFFFFFFF)
    counters[GHOSTS] += 1
    if cleared:
        clock.clears_of_source[pairs[pair].source] = number + 1


@compiled
def _cause(
    blocks: Blocks,
    pairs: Pairs,
    losses: Losses,
    clock: Clock,
    pair: int,
    block: int,
    changes: Changes,
    at: int,
    pieces: Pieces,
    piece: int,
    cells: Cells,
) -> int:
    """Return why a block that is not on the source's GPU was filled; count regret and extra cache needed."""
    cell = pieces.cells[piece]
    if pair >= 0 and pairs[pair].media & (GHOST - 1):
        return PROMOTED
    others = block >= 0 and blocks[block].holders > 0
    if pair >= 0:
        # Without a medium it is there because of its ghost.
        head = clock.counters[HEAD]
        number = head + ((np.int64(pairs[pair].position) - head) & 0xFFFFFFFF)
        slot = number & (len(losses) - 1)
        if losses[slot].cleared:
            return CLEARED_BEFORE
        cells.regret[cell, _log2_bucket(changes.times[at] - losses[slot].time)] += 1
        # A larger cache would have lost it to a restart or clear between.
        kept = (
            losses[slot].life == pieces.lives[piece] and number >= clock.clears_of_source[pairs[pair].source]
        )
        if kept and losses[slot].stored >= 0 and changes.stored[at] >= 0:
            needed = max(changes.stored[at] - losses[slot].stored, 0)
            cells.needed[cell, _needed_bucket(needed)] += changes.sizes[at]
        return PEER_AND_EVICTED if others else EVICTED_HERE
    if others:
        return PEER
    if block >= 0:
        if blocks[block].evicted > 0:
            cells.regret[cell, _log2_bucket(changes.times[at] - blocks[block].evicted_at)] += 1
            return EVICTED_ELSEWHERE
        if blocks[block].cleared > 0:
            return CLEARED_BEFORE
    if (
        pieces.alone[piece] != 0
        or pieces.trusts[piece] != 0
        or changes.times[at] < pieces.unsure_until[piece]
    ):
        return UNKNOWN
    return COLD


@compiled
def follow(
    blocks: Blocks,
    pairs: Pairs,
    losses: Losses,
    cells: Cells,
    gauges: Gauges,
    clock: Clock,
    refills: Refills,
    changes: Changes,
    pieces: Pieces,
    start: int,
    end: int,
    version: int,
    horizon: float,
    ghosts: int,
) -> tuple[int, int]:
    """Follow changes from `start`; return (index of the next change, why it stopped there).

    The caller has made room for `end - start` more blocks (twice as many with lower media), pairs and losses.
    At CLOCK_MOVED or CELL_MOVED it takes what it needs of the window that ends, moves it on and comes again;
    at REFILLS_FULL it makes room.
    """
    counters = clock.counters
    for at in range(start, end):
        time = changes.times[at]
        piece = changes.pieces[at]
        kind = changes.kinds[at]
        bit = np.int64(pieces.bits[piece])
        window = np.int64(np.floor(time / WINDOW_SECONDS))
        if window > counters[WINDOW]:
            return at, CLOCK_MOVED
        if kind == FILLED and bit == GPU and window > cells.windows[pieces.cells[piece]]:
            return at, CELL_MOVED
        if 2 * refills.totals[USED] >= len(refills.rows):
            return at, REFILLS_FULL
        if time > clock.time[0]:
            clock.time[0] = time
        while counters[HEAD] < counters[TAIL]:
            oldest = counters[HEAD] & (len(losses) - 1)
            if clock.time[0] - losses[oldest].time <= horizon:
                break
            _drop_oldest_loss(blocks, pairs, losses, clock)
        key = changes.keys[at]
        source = np.int64(pieces.sources[piece])
        mask = np.uint16(1 << bit)
        pair = find_pair(pairs, key, source)
        held = pair >= 0 and pairs[pair].media & mask != 0
        size = np.int64(changes.sizes[at])
        if kind == FILLED:
            if bit == GPU:
                cell = pieces.cells[piece]
                if held:
                    cause = REANNOUNCED
                else:
                    block = find_block(blocks, key)
                    cause = _cause(
                        blocks, pairs, losses, clock, pair, block, changes, at, pieces, piece, cells
                    )
                cells.blocks[cell, cause] += 1
                cells.tokens[cell, cause] += size
                cells.versions[cell] = version
                cells.trusts[cell] = max(cells.trusts[cell], pieces.trusts[piece])
                cells.dirty[cell] = 1
            if held:
                continue
            if pair < 0:
                pair = -1 - pair
                pairs[pair].key = key
                pairs[pair].source = source
                pairs[pair].media = 0
                pairs[pair].position = 0
                counters[USED_PAIRS] += 1
                clock.pairs_of_source[source] += 1
            main = _block(blocks, key, size, counters)
            if bit == GPU and pairs[pair].media & GHOST:
                pairs[pair].media &= 0xFFFF ^ GHOST
                head = counters[HEAD]
                number = head + ((np.int64(pairs[pair].position) - head) & 0xFFFFFFFF)
                slot = number & (len(losses) - 1)
                _forget_ghost(blocks, main, losses[slot].cleared != 0, counters)
            if bit < STORE_ONLY_BIT and not pairs[pair].media & ANNOUNCED:
                blocks[main].holders += 1
            pairs[pair].media |= mask
            if bit == GPU:
                if blocks[main].root == np.uint64(0):
                    blocks[main].root = changes.roots[at]
                    blocks[main].depth = changes.depths[at]
                    blocks[main].lineage = changes.lineages[at]
                if PROMOTED < cause < COLD and blocks[main].root != np.uint64(0):
                    count_refill(refills, blocks[main], size)
            entry = main if bit == GPU else _block(blocks, key + pieces.medium_keys[piece], size, counters)
            owners = np.int64(blocks[entry].owners)
            if owners == 0:
                blocks[entry].size = size
            blocks[entry].owners = owners + 1
            _count_owners(gauges, pieces.gauges[piece], owners, owners + 1, blocks[entry].size, version)
        elif held:
            pairs[pair].media &= 0xFFFF ^ mask
            main = find_block(blocks, key)
            if bit < STORE_ONLY_BIT and not pairs[pair].media & ANNOUNCED:
                blocks[main].holders -= 1
            entry = main if bit == GPU else find_block(blocks, key + pieces.medium_keys[piece])
            owners = np.int64(blocks[entry].owners)
            blocks[entry].owners = owners - 1
            _count_owners(gauges, pieces.gauges[piece], owners, owners - 1, blocks[entry].size, version)
            if bit == GPU and kind in (EVICTED, CLEARED):
                _lost(
                    blocks,
                    pairs,
                    losses,
                    clock,
                    pair,
                    main,
                    changes,
                    at,
                    np.int64(pieces.lives[piece]),
                    ghosts,
                )
            elif pairs[pair].media == 0:
                _free_pair(pairs, pair, clock)
            if entry != main:
                _free_if_unused(blocks, entry, counters)
            main = find_block(blocks, key)
            if main >= 0:
                _free_if_unused(blocks, main, counters)
        else:
            counters[UNMATCHED] += 1
    return end, DONE
