"""Changes of residency records in one buffer, each with its due time: the time as of which it counts."""

from __future__ import annotations

from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from connectors.process.compiled import borrowed, compiled
from pipeline.fleet.kernel.keys import key_of
from pipeline.fleet.kernel.packed_columns import (
    HAS_ADAPTERS,
    HAS_DEPTHS,
    HAS_ENDS,
    HAS_ROOTS,
    HAS_STORED,
    PackedColumns,
)
from pipeline.fleet.kernel.tables import F64, I64, U16, U64
from pipeline.fleet.kernel.transfers import IS_END, run_of
from schemas.residency import FILL_KINDS, SUBSUMED


class PieceOrder(NamedTuple):
    """What determines the order and the keys of the changes of each piece of a record."""

    sources: I64
    """Source numbers."""
    lives: I64
    """Numbers of the sources' engine sessions."""
    constants: U64
    """Of the hash domain and group (`keys.constant_of`)."""
    lineages: U16
    """For each piece, the number of the lineage without a LoRA, then those of its LoRAs."""
    first_lineages: I64
    """Where each piece begins in `lineages`."""
    later: F64
    """Seconds from the event time of a change to its due time."""
    salts: U64
    """Of the runs of sources that receive KV."""


class Reached(NamedTuple):
    """How far the changes of each source have come, by source number."""

    records: I64
    """The last record that the source was in, as numbered by `WaitingChanges`."""
    lives: I64
    """Number of its last engine session in that record."""
    floors: F64
    """Latest due time of the changes in earlier sessions and records."""
    times: F64
    """Latest due time of any change."""


WAITING: Final = np.dtype(
    [
        # Due time; within a piece it never goes back.
        ("due", "<f8"),
        # As in `Changes`.
        ("key", "<u8"),
        ("time", "<f8"),
        ("stored", "<i8"),
        ("root", "<u8"),
        ("run", "<u8"),
        ("size", "<u4"),
        ("piece", "<i4"),
        ("depth", "<u2"),
        ("lineage", "<u2"),
        ("kind", "u1"),
    ],
    align=True,
)
"""A row per waiting change, piece after piece; each fills one line of the processor's cache."""
WaitingRows: TypeAlias = npt.NDArray[Any]


class Spans(NamedTuple):
    """Where the changes of each piece are."""

    begin: I64
    """First change that waits."""
    end: I64
    next_due: F64
    """Its due time; infinite: none waits."""


@compiled
def unpack(
    packed: PackedColumns,
    pieces: PieceOrder,
    reached: Reached,
    record: int,
    one_in: int,
    room: WaitingRows,
    spans: Spans,
    at: int,
    first_piece: int,
    counted_to: float,
) -> tuple[int, int]:
    """Write a record's changes into `room` from `at` on, and where each piece is into `spans`.

    Return how many were written, and how many are due before `counted_to`. Due times never go back, neither
    in a pool nor from one session or record (`record` is its number) of a source to the next. With sampling,
    one block in `one_in` is written, chosen by the low bits of its key: the same for all sources.
    """
    packed, pieces, reached = borrowed(packed), borrowed(pieces), borrowed(reached)
    room, spans = borrowed(room), borrowed(spans)
    found, late = at, 0
    packed_at, stored_at, root_at, depth_at, adapter_at, end_at = 0, 0, 0, 0, 0, 0
    for piece in range(len(packed.lengths)):
        source, life, constant = pieces.sources[piece], pieces.lives[piece], pieces.constants[piece]
        has, stored_before = packed.has[piece], packed.stored_before[piece]
        first_lineage, later = pieces.first_lineages[piece], pieces.later[piece]
        if reached.records[source] != record or reached.lives[source] != life:
            reached.records[source] = record
            reached.lives[source] = life
            reached.floors[source] = reached.times[source]
        time = reached.floors[source]
        begin = found
        for change in range(packed_at, packed_at + packed.lengths[piece]):
            kind = packed.kinds[change]
            stored, root, depth, adapter = np.int64(-1), np.uint64(0), np.uint16(0), np.int64(0)
            end = np.uint64(0)
            if has & HAS_STORED:
                stored = np.int64(packed.stored[stored_at]) + stored_before
                stored_at += 1
            if kind in FILL_KINDS:
                if has & HAS_ROOTS:
                    root = packed.roots[root_at]
                    root_at += 1
                if has & HAS_DEPTHS:
                    depth = packed.depths[depth_at]
                    depth_at += 1
                if has & HAS_ADAPTERS:
                    adapter = np.int64(packed.adapters[adapter_at])
                    adapter_at += 1
                if has & HAS_ENDS:
                    end = packed.ends[end_at]
                    end_at += 1
            key = key_of(packed.hashes[change], constant)
            if one_in != 1 and (key & np.uint64(0xFFFFFF)) % np.uint64(one_in) != np.uint64(0):
                continue
            time = max(time, packed.times[change] + later)
            late += time < counted_to
            room[found].due = time
            room[found].key = key
            room[found].time = packed.times[change]
            room[found].stored = stored
            room[found].root = root
            room[found].size = packed.sizes[change]
            room[found].piece = first_piece + piece
            room[found].depth = depth
            room[found].lineage = pieces.lineages[first_lineage + adapter]
            room[found].kind = kind
            # In a sample, the last block of a run may be left out: each block is judged by itself.
            run = np.uint64(0)
            if end != np.uint64(0) and one_in == 1:
                run = run_of(end, packed.times[change], pieces.salts[piece])
                if end == packed.hashes[change]:
                    run |= np.uint64(IS_END)
            room[found].run = run
            found += 1
        packed_at += packed.lengths[piece]
        reached.times[source] = max(reached.times[source], time)
        spans.begin[first_piece + piece] = begin
        spans.end[first_piece + piece] = found
        spans.next_due[first_piece + piece] = room[begin].due if begin < found else np.inf
    return found - at, late


def counting(changes: WaitingRows) -> npt.NDArray[np.bool_]:
    """Return which changes of a record count: all but fills that it later subsumes, and these subsumptions.

    A fine-grained block that is subsumed in the record that filled it was never filled: the coarse one was.
    """
    kept = np.ones(len(changes), np.bool_)
    filled: dict[tuple[int, int], int] = {}
    for at in np.flatnonzero(np.isin(changes["kind"], (*FILL_KINDS, SUBSUMED))).tolist():
        block = (int(changes["piece"][at]), int(changes["key"][at]))
        if changes["kind"][at] != SUBSUMED:
            filled[block] = at
        elif block in filled:
            kept[at] = kept[filled.pop(block)] = False
    return kept
