"""The compiled loop that follows changes of residency: holders, losses, and the cause of every fill."""

from __future__ import annotations

from typing import Final

import numpy as np

from connectors.process.compiled import borrowed, compiled, fetch_ahead, inlined
from pipeline.fleet.causes import (
    COLD,
    EVICTED_AT_RECEIVERS,
    EVICTED_ELSEWHERE,
    EVICTED_PART,
    GENERATED_HERE,
    PEER,
    PEER_AT_RECEIVERS,
    PEER_PART,
    REANNOUNCED,
)
from pipeline.fleet.kernel.columns import Changes, Pieces
from pipeline.fleet.kernel.counts import (
    CLOCK_MOVED,
    DONE,
    ENDED_FULL,
    HEAD,
    REFILLS_FULL,
    TAIL,
    UNMATCHED,
    USED_BLOCKS,
    USED_PAIRS,
    WINDOW,
    Cells,
    Clock,
    Ended,
    Gauges,
    begin_window,
    count_fill,
    count_owners,
)
from pipeline.fleet.kernel.fill_cause import NO_BUCKET, cause_of
from pipeline.fleet.kernel.losses import (
    drop_oldest_loss,
    free_if_unused,
    release_pair,
    remember_loss,
    uncount_loss,
)
from pipeline.fleet.kernel.refills import USED, Refills, count_refill
from pipeline.fleet.kernel.tables import (
    ANNOUNCED,
    FETCHED_AHEAD,
    HAS_LOSS,
    I64,
    MEDIA,
    RECEIVED,
    STORE_ONLY_BIT,
    Blocks,
    Losses,
    Pairs,
    find_block,
    find_pair,
    home_of_block,
    home_of_pair,
)
from pipeline.fleet.kernel.transfers import Waiting, wait
from pipeline.reading.windows import WINDOW_SECONDS
from schemas.residency import CLEARED, EVICTED, FILL_KINDS

GPU: Final = 0
"""Bit of the medium whose fills get a cause and whose losses are remembered."""


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
    blocks[slot].received = 0
    blocks[slot].received_holders = 0
    blocks[slot].received_evicted = 0
    blocks[slot].evicted = 0
    blocks[slot].cleared = 0
    blocks[slot].size = size
    blocks[slot].evicted_at = 0.0
    blocks[slot].root = 0
    counters[USED_BLOCKS] += 1
    return slot


@inlined
def _is_fill(kind: int) -> bool:
    came: bool = kind in FILL_KINDS
    return came


@inlined
def _fetch_slots(blocks: Blocks, pairs: Pairs, key: np.uint64, source: int) -> None:
    """Begin to fetch the slots of a change into the processor's cache."""
    fetch_ahead(pairs, home_of_pair(pairs, (key, np.int64(source))))
    fetch_ahead(blocks, home_of_block(blocks, key))


@inlined
def _losses_leave(losses: Losses, clock: Clock, coming: int, horizon: float, max_losses: int) -> bool:
    """Return whether old losses leave while `coming` changes are followed, about one for each new loss."""
    head, tail = clock.counters[HEAD], clock.counters[TAIL]
    oldest = losses[head & (len(losses) - 1)].time
    full: bool = tail - head + coming > max_losses
    old: bool = tail > head and clock.time[0] - oldest > horizon - WINDOW_SECONDS
    return full or old


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
    ended: Ended,
    waiting: Waiting,
    start: int,
    end: int,
    version: int,
    horizon: float,
    max_losses: int,
) -> tuple[int, int]:
    """Follow changes from `start`; return (index of the next change, why it stopped there).

    The caller has made room for `end - start` more blocks (twice as many with lower media), pairs and losses,
    and `waiting` has room for as many fills and answers.
    At CLOCK_MOVED the caller takes what it needs of the window that ends, sets the clock's window and calls
    again; at ENDED_FULL and REFILLS_FULL it makes room first.
    """
    blocks, pairs, losses = borrowed(blocks), borrowed(pairs), borrowed(losses)
    cells, gauges, clock, refills = borrowed(cells), borrowed(gauges), borrowed(clock), borrowed(refills)
    changes, pieces, ended = borrowed(changes), borrowed(pieces), borrowed(ended)
    waiting = borrowed(waiting)
    counters = clock.counters
    fetched = start
    leaving, losses_leave = counters[HEAD], _losses_leave(losses, clock, end - start, horizon, max_losses)
    for at in range(start, end):
        while fetched < min(at + FETCHED_AHEAD, end):
            _fetch_slots(blocks, pairs, changes.keys[fetched], pieces.sources[changes.pieces[fetched]])
            if losses_leave and not _is_fill(changes.kinds[fetched]) and leaving < counters[TAIL]:
                slot = leaving & (len(losses) - 1)
                _fetch_slots(blocks, pairs, losses[slot].key, losses[slot].source)
                leaving += 1
            fetched += 1
        time = changes.times[at]
        piece = changes.pieces[at]
        kind = changes.kinds[at]
        is_fill = _is_fill(kind)
        bit = np.int64(pieces.bits[piece])
        window = np.int64(np.floor(time / WINDOW_SECONDS))
        if window > counters[WINDOW]:
            return at, CLOCK_MOVED
        receives = pieces.receives[piece] != 0
        if is_fill and bit == GPU and not receives and window > cells.windows[pieces.cells[piece]]:
            if ended.used[0] == len(ended.numbers):
                return at, ENDED_FULL
            begin_window(cells, pieces.cells[piece], window, ended)
        if 2 * refills.totals[USED] >= len(refills.rows):
            return at, REFILLS_FULL
        if time > clock.time[0]:
            clock.time[0] = time
        while counters[HEAD] < counters[TAIL]:
            oldest = counters[HEAD] & (len(losses) - 1)
            if clock.time[0] - losses[oldest].time <= horizon:
                break
            drop_oldest_loss(blocks, pairs, losses, clock)
        key = changes.keys[at]
        source = np.int64(pieces.sources[piece])
        mask = np.uint16(1 << bit)
        pair = find_pair(pairs, (key, source))
        held = pair >= 0 and pairs[pair].media & mask != 0
        size = np.int64(changes.sizes[at])
        if is_fill:
            if bit == GPU:
                cell = pieces.cells[piece]
                # For a block announced again, only a source that receives KV needs the block's row.
                block = find_block(blocks, key) if receives or not held else np.int64(-1)
                found = REANNOUNCED, NO_BUCKET, NO_BUCKET
                if not held:
                    found = cause_of(blocks, pairs, losses, clock, pair, block, changes, at, pieces, piece)
                if found[0] == PEER_AT_RECEIVERS:
                    found = PEER, NO_BUCKET, NO_BUCKET
                    cells.parts[cell, PEER_PART] += size
                elif found[0] == EVICTED_AT_RECEIVERS:
                    found = EVICTED_ELSEWHERE, found[1], NO_BUCKET
                    cells.parts[cell, EVICTED_PART] += size
                cause = found[0]
                if receives:
                    chain = changes.roots[at], changes.depths[at], changes.lineages[at]
                    if block >= 0 and blocks[block].root != np.uint64(0):
                        chain = blocks[block].root, blocks[block].depth, blocks[block].lineage
                    known = pair >= 0 or (
                        block >= 0
                        and (
                            blocks[block].holders > 0
                            or blocks[block].evicted > 0
                            or blocks[block].cleared > 0
                        )
                    )
                    wait(waiting, changes, at, pieces, known, chain, found)
                else:
                    count_fill(cells, cell, found, size, pieces.trusts[piece], version)
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
            if receives and not pairs[pair].media & MEDIA:
                pairs[pair].media |= RECEIVED
            received = np.int64(1) if pairs[pair].media & RECEIVED else np.int64(0)
            # Below, `main` is the block's own row and `entry` that of its medium: on the GPU they are one.
            main = _block(blocks, key, size, counters)
            if bit == GPU and pairs[pair].media & HAS_LOSS:
                pairs[pair].media &= 0xFFFF ^ HAS_LOSS
                head = counters[HEAD]
                number = head + ((np.int64(pairs[pair].position) - head) & 0xFFFFFFFF)
                slot = number & (len(losses) - 1)
                loss_received = np.int64(losses[slot].received)
                uncount_loss(blocks, main, losses[slot].cleared != 0, loss_received, counters)
            if bit < STORE_ONLY_BIT and not pairs[pair].media & ANNOUNCED:
                blocks[main].holders += 1
                blocks[main].received_holders += received
            pairs[pair].media |= mask
            if bit == GPU:
                if blocks[main].root == np.uint64(0):
                    blocks[main].root = changes.roots[at]
                    blocks[main].depth = changes.depths[at]
                    blocks[main].lineage = changes.lineages[at]
                if not receives and GENERATED_HERE < cause < COLD and blocks[main].root != np.uint64(0):
                    count_refill(refills, blocks[main], size)
            entry = main if bit == GPU else _block(blocks, key + pieces.medium_keys[piece], size, counters)
            owners = np.int64(blocks[entry].owners)
            if owners == 0:
                blocks[entry].size = size
            blocks[entry].owners = owners + 1
            before = owners, np.int64(blocks[entry].received)
            after = owners + 1, before[1] + received
            blocks[entry].received = after[1]
            count_owners(gauges, pieces.gauges[piece], before, after, blocks[entry].size, version)
        elif held:
            pairs[pair].media &= 0xFFFF ^ mask
            received = np.int64(1) if pairs[pair].media & RECEIVED else np.int64(0)
            if not pairs[pair].media & MEDIA:
                pairs[pair].media &= HAS_LOSS
            main = find_block(blocks, key)
            if bit < STORE_ONLY_BIT and not pairs[pair].media & ANNOUNCED:
                blocks[main].holders -= 1
                blocks[main].received_holders -= received
            entry = main if bit == GPU else find_block(blocks, key + pieces.medium_keys[piece])
            owners = np.int64(blocks[entry].owners)
            blocks[entry].owners = owners - 1
            before = owners, np.int64(blocks[entry].received)
            after = owners - 1, before[1] - received
            blocks[entry].received = after[1]
            count_owners(gauges, pieces.gauges[piece], before, after, blocks[entry].size, version)
            if bit == GPU and kind in (EVICTED, CLEARED):
                remember_loss(
                    blocks,
                    pairs,
                    losses,
                    clock,
                    pair,
                    main,
                    changes,
                    at,
                    received,
                    np.int64(pieces.lives[piece]),
                    max_losses,
                )
            elif pairs[pair].media == 0:
                release_pair(pairs, pair, clock)
            if entry != main:
                free_if_unused(blocks, entry, counters)
            main = find_block(blocks, key)
            if main >= 0:
                free_if_unused(blocks, main, counters)
        else:
            counters[UNMATCHED] += 1
    return end, DONE
