"""Changes that wait until those of other partitions that count before them have arrived.

The rule is in docs/figures.md (Order): `event_time` says how far the fleet is, `kernel.event_order` as of
when a change counts, `undecided` what waits for a role.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from pipeline.fleet.hashing.comparison import PieceOrigins
from pipeline.fleet.kernel.columns import Changes, Pieces
from pipeline.fleet.kernel.due import Groups, gathered, groups_due, move, room_for_groups
from pipeline.fleet.kernel.event_order import WAITING, Reached, Spans, WaitingRows, counting, unpack
from pipeline.fleet.kernel.tables import U8, doubled, mapped
from pipeline.fleet.packing import Packed, Table, fields_of, rows_of
from pipeline.fleet.pieces import RecordPieces
from pipeline.fleet.registry import Sources
from schemas.fleet_checkpoints import TableName
from schemas.residency import SUBSUMED

_SMALLEST = 1024
_ROOM = 3
"""Size of a new buffer, as a multiple of what waits; more than half of a buffer must be free."""
_SPARSE = 16
"""A buffer larger than this multiple of what waits is replaced by a smaller one."""


class WaitingPieces(NamedTuple):
    """What the waiting changes of each piece have in common."""

    followed: Pieces
    origins: PieceOrigins
    named: U8
    """Whether changes due at one time are ordered by the names of their sources, or stay as they came."""


class Due(NamedTuple):
    """n changes in the order in which they count; valid until more are added."""

    latest: float
    """Due time of the last one."""
    changes: Changes
    pieces: Pieces
    origins: PieceOrigins


class WaitingChanges:
    """Changes as they came, piece after piece; those that are due are taken out together, in order."""

    def __init__(self, packed: Packed, sources: Sources) -> None:
        """`packed`: the tables of a base, of these sources."""
        self._sources = sources
        self._reached = Reached(
            np.zeros(16, np.int64), np.zeros(16, np.int64), np.zeros(16, np.float64), np.zeros(16, np.float64)
        )
        for source in sources.by_name.values():
            self._room_for_source(source.number)
            self._reached.times[source.number] = source.reached
        self._record = 0
        """Number of the last record."""
        self.count = 0
        """Changes that wait."""
        self._used, self._used_pieces = 0, 0
        """How much of the buffers is in use; what follows is free."""
        self._room = np.zeros(0, WAITING)
        self._groups = room_for_groups(0)
        self._pieces, self._spans = _room_for_pieces(0)
        if "waiting" in packed and "waiting_pieces" in packed:
            room, pieces = unpacked(packed["waiting"], packed["waiting_pieces"])
            self._restore(room, pieces)

    def add(self, record: RecordPieces, *, named: bool, one_in: int, counted_to: float) -> tuple[int, int]:
        """Let the changes of a record wait, those of one block in `one_in`.

        Return how many there are, and how many of them are due before `counted_to`.
        """
        packed, at, first = record.packed, self._used, self._used_pieces
        self._room_for_source(len(self._sources.by_number) - 1)
        if at + len(packed.kinds) > len(self._room) or first + len(packed.lengths) > len(self._spans.end):
            self._move(len(packed.kinds), len(packed.lengths))
            at, first = self._used, self._used_pieces
        self._record += 1
        found, late = unpack(
            packed,
            record.order,
            self._reached,
            self._record,
            one_in,
            self._room,
            self._spans,
            at,
            first,
            counted_to,
        )
        self._used_pieces = end = first + len(packed.lengths)
        for column, new in zip(
            _columns(self._pieces), (*record.followed, *record.origins, named), strict=True
        ):
            column[first:end] = new
        self._used = at + found
        if (packed.kinds == SUBSUMED).any():
            self._leave_out(first, at)
        found = self._used - at
        self.count += found
        return found, late

    def take(self, until: float) -> Due | None:
        """Return what is due at or before `until`, in the order in which it counts; None if nothing is."""
        if not self.count:
            return None
        groups, count = groups_due(self._room, self._spans, self._used_pieces, until, self._groups)
        if not count:
            return None
        order = self._order(groups)
        changes = gathered(self._room, groups, order, count)
        self.count -= count
        pieces = mapped(self._pieces.followed, lambda column: column[: self._used_pieces])
        origins = mapped(self._pieces.origins, lambda column: column[: self._used_pieces])
        if not self.count:
            self._used = self._used_pieces = 0
        return Due(float(groups.due[order[-1]]), changes, pieces, origins)

    def beyond(self, most: int) -> float:
        """Return the due time up to which changes must be taken so that at most `most` wait; -inf: none."""
        if self.count <= most:
            return -math.inf
        self._move(0, 0)
        place = self.count - most - 1
        return float(np.partition(self._room["due"][: self.count], place)[place])

    def sources(self) -> set[int]:
        """Return the numbers of the sources whose changes wait."""
        begin, end = self._spans.begin[: self._used_pieces], self._spans.end[: self._used_pieces]
        return set(self._pieces.origins.sources[: self._used_pieces][begin < end].tolist())

    def forget(self, number: int) -> None:
        """Forget how far a source had come, as its number is freed."""
        self._reached.times[number] = 0.0

    def copied(self) -> dict[TableName, Table]:
        """Return copies of what waits, for a base; note in the sources how far each has come."""
        for source in self._sources.by_name.values():
            source.reached = float(self._reached.times[source.number])
        if not self.count:
            return {}
        self._move(0, 0)
        return {
            "waiting": fields_of(self._room[: self.count].copy()),
            "waiting_pieces": [column[: self._used_pieces].copy() for column in _columns(self._pieces)],
        }

    def _room_for_source(self, number: int) -> None:
        while number >= len(self._reached.times):
            self._reached = mapped(self._reached, doubled)

    def _move(self, changes: int, pieces: int) -> None:
        """Move what waits together, where there is room for `changes` and `pieces` more."""
        used = self._used_pieces
        live = np.flatnonzero(self._spans.end[:used] > self._spans.begin[:used])
        room, need = self._room, self.count + changes
        if 2 * need > len(room) or _SPARSE * need < len(room):
            room = np.zeros(max(_SMALLEST, _ROOM * need), WAITING)
            self._groups = room_for_groups(len(room))
        move(self._room, self._spans, used, room)
        self._room, self._used, self._used_pieces = room, self.count, len(live)
        old, spans, need = self._pieces, self._spans, len(live) + pieces
        if 2 * need > len(spans.end) or _SPARSE * need < len(spans.end):
            self._pieces, self._spans = _room_for_pieces(max(_SMALLEST, _ROOM * need))
        for column, before in zip(_columns(self._pieces), _columns(old), strict=True):
            column[: len(live)] = before[live]
        for column, before in zip(self._spans, spans, strict=True):
            column[: len(live)] = before[: len(live)]

    def _restore(self, room: WaitingRows, pieces: WaitingPieces) -> None:
        """Let the changes of a base wait."""
        self._move(len(room), len(pieces.named))
        self._room[: len(room)] = room
        self.count = self._used = len(room)
        self._used_pieces = used = len(pieces.named)
        for column, old in zip(_columns(self._pieces), _columns(pieces), strict=True):
            column[:used] = old
        self._place(0, 0)

    def _place(self, first: int, begin: int) -> None:
        """Note where the changes of the pieces from `first` on are; the first begin at `begin`."""
        room, of = self._room[begin : self._used], slice(first, self._used_pieces)
        lengths = np.bincount(room["piece"] - first, minlength=self._used_pieces - first)
        self._spans.end[of] = begin + np.cumsum(lengths)
        self._spans.begin[of] = self._spans.end[of] - lengths
        due = np.append(room["due"], np.inf)[self._spans.begin[of] - begin]
        self._spans.next_due[of] = np.where(lengths > 0, due, np.inf)

    def _leave_out(self, first: int, begin: int) -> None:
        """Remove what does not count from the pieces from `first` on, whose changes begin at `begin`."""
        room = self._room[begin : self._used]
        kept = room[counting(room)]
        room[: len(kept)] = kept
        self._used = begin + len(kept)
        self._place(first, begin)

    def _order(self, groups: Groups) -> npt.NDArray[np.intp]:
        """Return the order of the groups by due time and, where equal, by the names of their sources."""
        order = np.argsort(groups.due, kind="stable")
        due = groups.due[order]
        if (due[1:] == due[:-1]).any():
            pieces = self._room["piece"][groups.begin]
            named = self._pieces.named[pieces]
            if named.any():
                ranks = self._sources.ranks()[self._pieces.origins.sources[pieces]]
                order = np.lexsort((ranks * named, groups.due))
        return order


PIECE_COLUMNS = (
    *("<u2", "<u2", "u1", "u1", "<u8", "<i4", "<i4", "<f8", "u1", "u1"),
    *("<i8", "<u4", "<u8"),
    "u1",
)
"""Of the table `waiting_pieces`: the columns of `Pieces` and `PieceOrigins`, and `named`."""


def unpacked(waiting: Sequence[bytes], pieces: Sequence[bytes]) -> tuple[WaitingRows, WaitingPieces]:
    """Unpack the two tables of waiting changes. Raises ValueError."""
    columns = [np.frombuffer(column, kind) for column, kind in zip(pieces, PIECE_COLUMNS, strict=True)]
    return rows_of(WAITING, waiting), _pieces_of(columns)


def _room_for_pieces(count: int) -> tuple[WaitingPieces, Spans]:
    pieces = _pieces_of([np.zeros(count, kind) for kind in PIECE_COLUMNS])
    return pieces, Spans(np.zeros(count, np.int64), np.zeros(count, np.int64), np.full(count, np.inf))


def _pieces_of(columns: Sequence[npt.NDArray[Any]]) -> WaitingPieces:
    *columns, named = columns
    of_pieces = len(Pieces._fields)
    return WaitingPieces(Pieces(*columns[:of_pieces]), PieceOrigins(*columns[of_pieces:]), named)


def _columns(pieces: WaitingPieces) -> list[npt.NDArray[Any]]:
    return [*pieces.followed, *pieces.origins, pieces.named]
