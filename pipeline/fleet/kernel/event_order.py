"""A residency record as columns in the order in which its changes count."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from connectors.process.compiled import borrowed, compiled
from pipeline.fleet.kernel.columns import Changes
from pipeline.fleet.kernel.keys import key_of
from pipeline.fleet.kernel.packed_columns import (
    HAS_ADAPTERS,
    HAS_DEPTHS,
    HAS_ROOTS,
    HAS_STORED,
    PackedColumns,
)
from pipeline.fleet.kernel.tables import F64, I64, U16, U64, mapped
from schemas.residency import FILLED, SUBSUMED


class PieceOrder(NamedTuple):
    """What decides on the order and the keys of the changes of each piece."""

    sources: I64
    """Number among the sources of the record."""
    lives: I64
    constants: U64
    """Of its hash domain and group."""
    lineages: U16
    """Of each piece the number of the lineage without a LoRA, then those of its LoRAs."""
    first_lineages: I64
    """Where those of each piece begin."""


class _Reached(NamedTuple):
    """How far the changes of each source of a record have come."""

    lives: I64
    floors: F64
    """Latest time of the lives before."""
    times: F64
    """Latest time of this life, and of those before."""


def in_event_order(packed: PackedColumns, pieces: PieceOrder, one_in: int) -> Changes:
    """Return the changes of a record, those of one block in `one_in`, in the order in which they count.

    That is the order of event time, as far as it does not turn the order of a pool around: times of a pool
    that go back count as the latest before, and so do those of a source's next life. A fine-grained block
    that a coarse one subsumes in the same record was never filled: the coarse one is.
    """
    changes, due = _room_for(len(packed.hashes)), np.empty(len(packed.hashes))
    sources = int(pieces.sources.max()) + 1
    reached = _Reached(np.full(sources, -1, np.int64), np.full(sources, -np.inf), np.full(sources, -np.inf))
    found, ordered = _unpack(packed, pieces, reached, one_in, changes, due)
    if found < len(due):
        changes, due = mapped(changes, lambda column: column[:found]), due[:found]
    order: npt.NDArray[np.intp] | None = None
    if not ordered:
        order = np.argsort(due, kind="stable")
    if (packed.kinds == SUBSUMED).any():
        counting = _counting(changes)
        order = order[counting[order]] if order is not None else np.flatnonzero(counting)
    if order is None:
        return changes
    taken = _room_for(len(order))
    _take(changes, order, taken)
    return taken


def _room_for(count: int) -> Changes:
    return Changes(
        np.empty(count, np.uint64),
        np.empty(count, np.uint8),
        np.empty(count, np.float64),
        np.empty(count, np.uint32),
        np.empty(count, np.int64),
        np.empty(count, np.int32),
        np.empty(count, np.uint64),
        np.empty(count, np.uint16),
        np.empty(count, np.uint16),
    )


@compiled
def _unpack(
    packed: PackedColumns, pieces: PieceOrder, reached: _Reached, one_in: int, changes: Changes, due: F64
) -> tuple[int, bool]:
    """Write the changes of the sample, piece after piece, and the time as which each counts.

    Return how many there are, and whether they are in the order of that time. The low bits of a key decide
    on the sample, so all sources sample the same blocks.
    """
    packed, pieces, reached = borrowed(packed), borrowed(pieces), borrowed(reached)
    changes, due = borrowed(changes), borrowed(due)
    found, ordered, latest = 0, True, -np.inf
    at, stored_at, root_at, depth_at, adapter_at = 0, 0, 0, 0, 0
    for piece in range(len(packed.lengths)):
        source, life, constant = pieces.sources[piece], pieces.lives[piece], pieces.constants[piece]
        has, stored_before = packed.has[piece], packed.stored_before[piece]
        first_lineage = pieces.first_lineages[piece]
        if reached.lives[source] != life:
            reached.lives[source] = life
            reached.floors[source] = reached.times[source]
        time = reached.floors[source]
        for change in range(at, at + packed.lengths[piece]):
            kind = packed.kinds[change]
            stored, root, depth, adapter = np.int64(-1), np.uint64(0), np.uint16(0), np.int64(0)
            if has & HAS_STORED:
                stored = np.int64(packed.stored[stored_at]) + stored_before
                stored_at += 1
            if kind == FILLED:
                if has & HAS_ROOTS:
                    root = packed.roots[root_at]
                    root_at += 1
                if has & HAS_DEPTHS:
                    depth = packed.depths[depth_at]
                    depth_at += 1
                if has & HAS_ADAPTERS:
                    adapter = np.int64(packed.adapters[adapter_at])
                    adapter_at += 1
            key = key_of(packed.hashes[change], constant)
            if one_in != 1 and (key & np.uint64(0xFFFFFF)) % np.uint64(one_in) != np.uint64(0):
                continue
            time = max(time, packed.times[change])
            ordered = ordered and time >= latest
            latest = time
            due[found] = time
            changes.keys[found] = key
            changes.kinds[found] = kind
            changes.times[found] = packed.times[change]
            changes.sizes[found] = packed.sizes[change]
            changes.stored[found] = stored
            changes.pieces[found] = piece
            changes.roots[found] = root
            changes.depths[found] = depth
            changes.lineages[found] = pieces.lineages[first_lineage + adapter]
            found += 1
        at += packed.lengths[piece]
        reached.times[source] = max(reached.times[source], time)
    return found, ordered


@compiled
def _take(changes: Changes, order: npt.NDArray[np.intp], taken: Changes) -> None:
    """Write the changes in another order."""
    changes, order, taken = borrowed(changes), borrowed(order), borrowed(taken)
    for to in range(len(order)):
        at = order[to]
        taken.keys[to] = changes.keys[at]
        taken.kinds[to] = changes.kinds[at]
        taken.times[to] = changes.times[at]
        taken.sizes[to] = changes.sizes[at]
        taken.stored[to] = changes.stored[at]
        taken.pieces[to] = changes.pieces[at]
        taken.roots[to] = changes.roots[at]
        taken.depths[to] = changes.depths[at]
        taken.lineages[to] = changes.lineages[at]


def _counting(changes: Changes) -> npt.NDArray[np.bool_]:
    """Return which changes count: neither a subsumption nor the fill it takes back."""
    kept = np.ones(len(changes.keys), np.bool_)
    filled: dict[tuple[int, int], int] = {}
    for at in np.flatnonzero((changes.kinds == FILLED) | (changes.kinds == SUBSUMED)).tolist():
        block = (int(changes.pieces[at]), int(changes.keys[at]))
        if changes.kinds[at] == FILLED:
            filled[block] = at
        elif block in filled:
            kept[at] = kept[filled.pop(block)] = False
    return kept
