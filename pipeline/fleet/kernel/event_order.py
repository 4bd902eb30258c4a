"""A residency record as columns in the order in which its changes count."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from connectors.process.compiled import compiled
from pipeline.fleet.kernel.columns import Changes
from pipeline.fleet.kernel.keys import sampled_keys
from pipeline.fleet.kernel.tables import F64, I64, U8, U16, U32, U64, mapped
from schemas.hashes import HASH_BYTES
from schemas.residency import FILLED, SUBSUMED, ResidencyChanges

_NOTHING = np.int64(-1)


class Piece(NamedTuple):
    """The changes of one source, life and pool."""

    changes: ResidencyChanges
    source: int
    life: int
    constant: int
    """Of its hash domain and group."""
    lineages: Sequence[int]
    """Number of the lineage without a LoRA, then those of `changes.loras`."""


class _Reached(NamedTuple):
    """How far the changes of a source's pieces have come."""

    life: int
    floor: float
    """Latest time of the lives before."""
    latest: float
    """Latest time of this life, and of those before."""


class Columns(NamedTuple):
    """n changes, piece after piece."""

    hashes: U64
    kinds: U8
    times: F64
    sizes: U32
    stored: I64
    roots: U64
    """Of chains; 0 where not known and for what is no fill."""
    depths: U16
    lineages: U16


def in_event_order(pieces: list[Piece], one_in: int) -> Changes:
    """Return the changes of a record, those of one block in `one_in`, in the order in which they count.

    That is the order of event time, as far as it does not turn the order of a pool around: times of a pool
    that go back count as the latest before, and so do those of a source's next life. A fine-grained block
    that a coarse one subsumes in the same record was never filled: the coarse one is.
    """
    columns, lengths = _columns(pieces)
    constants = np.array([piece.constant for piece in pieces], np.uint64)
    keys, number_of, indices = sampled_keys(columns.hashes, lengths, constants, one_in)
    if len(keys) < len(columns.hashes):
        columns = mapped(columns, lambda column: column[indices])
        lengths = np.bincount(number_of, minlength=len(pieces))
    changes = Changes(
        keys,
        columns.kinds,
        columns.times,
        columns.sizes,
        columns.stored,
        number_of,
        columns.roots,
        columns.depths,
        columns.lineages,
    )
    order: npt.NDArray[np.intp] | None = None
    if len(pieces) > 1:
        order = np.argsort(_due(columns.times, lengths, pieces), kind="stable")
    if any(SUBSUMED in piece.changes.kinds for piece in pieces):
        counting = _counting(changes)
        order = order[counting[order]] if order is not None else np.flatnonzero(counting)
    return changes if order is None else mapped(changes, lambda column: column[order])


def _columns(pieces: list[Piece]) -> tuple[Columns, I64]:
    """Return the columns of all changes, and how many each piece has."""
    parts = [piece.changes for piece in pieces]
    lengths = np.array([len(part.hashes) // HASH_BYTES for part in parts], np.int64)
    stored = [
        np.frombuffer(part.stored, "<u4").astype(np.int64) + part.stored_before
        if part.stored
        else np.full(length, _NOTHING)
        for part, length in zip(parts, lengths.tolist(), strict=True)
    ]
    # Copies: what a buffer is seen through cannot be written, which to the compiler is another type.
    kinds = np.frombuffer(b"".join([part.kinds for part in parts]), np.uint8).copy()
    columns = Columns(
        np.frombuffer(b"".join([part.hashes for part in parts]), ">u8").astype(np.uint64),
        kinds,
        np.frombuffer(b"".join([part.times for part in parts]), "<f8").astype(np.float64),
        np.frombuffer(b"".join([part.block_sizes for part in parts]), "<u4").astype(np.uint32),
        stored[0] if len(stored) == 1 else np.concatenate(stored),
        *_chains(pieces, kinds, lengths),
    )
    return columns, lengths


def _chains(pieces: list[Piece], kinds: U8, lengths: I64) -> tuple[U64, U16, U16]:
    """Return roots, depths and lineages of all changes; records have them for fills only."""
    roots, depths = np.zeros(len(kinds), np.uint64), np.zeros(len(kinds), np.uint16)
    lineages = np.repeat(np.array([piece.lineages[0] for piece in pieces], np.uint16), lengths)
    parts = [piece.changes for piece in pieces]
    if any(part.roots for part in parts):
        counts = [part.kinds.count(FILLED) for part in parts]
        filled = kinds == FILLED
        packed = [part.roots or bytes(8 * count) for part, count in zip(parts, counts, strict=True)]
        roots[filled] = np.frombuffer(b"".join(packed), ">u8")
        packed = [part.depths or bytes(2 * count) for part, count in zip(parts, counts, strict=True)]
        depths[filled] = np.frombuffer(b"".join(packed), "<u2")
    if any(part.lora_codes for part in parts):
        ends = np.cumsum(lengths).tolist()
        for piece, end, length in zip(pieces, ends, lengths.tolist(), strict=True):
            if piece.changes.lora_codes:
                filled_at = np.flatnonzero(kinds[end - length : end] == FILLED) + end - length
                numbers = np.array(piece.lineages, np.uint16)
                lineages[filled_at] = numbers[np.frombuffer(piece.changes.lora_codes, "<u2")]
    return roots, depths, lineages


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


def _due(times: F64, lengths: I64, pieces: list[Piece]) -> F64:
    """Return the time as which each change counts."""
    ends = np.cumsum(lengths).tolist()
    due = _never_back(times, np.array(ends, np.int64))
    latest: dict[int, _Reached] = {}
    start = 0
    for piece, end in zip(pieces, ends, strict=True):
        life, floor, reached = latest.get(piece.source, (piece.life, -np.inf, -np.inf))
        if life != piece.life:
            floor = reached
        if end > start:
            np.maximum(due[start:end], floor, out=due[start:end])
            reached = max(reached, float(due[end - 1]))
        latest[piece.source] = _Reached(piece.life, floor, reached)
        start = end
    return due


@compiled
def _never_back(times: F64, ends: I64) -> F64:
    """Return the latest time so far of each piece."""
    due: F64 = times.copy()
    start = 0
    for end in ends:
        for at in range(start + 1, end):
            if due[at] < due[at - 1]:
                due[at] = due[at - 1]
        start = end
    return due
