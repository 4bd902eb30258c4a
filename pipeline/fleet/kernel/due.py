"""Waiting changes that are due, as groups: consecutive changes of one piece with the same due time."""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from connectors.process.compiled import borrowed, compiled, fetch_ahead
from pipeline.fleet.kernel.columns import Changes
from pipeline.fleet.kernel.event_order import WAITING, Spans, WaitingRows
from pipeline.fleet.kernel.tables import F64, I64, mapped

_AHEAD: Final = 8
"""How many groups ahead the first change is fetched into the processor's cache."""
_OF_CHANGES: Final = ("key", "kind", "time", "size", "stored", "piece", "root", "depth", "lineage", "run")
"""The fields of WAITING in the order of those of `Changes`."""


class Groups(NamedTuple):
    """Changes that are adjacent in the buffer and due at the same time."""

    due: F64
    begin: I64
    lengths: I64


def room_for_groups(count: int) -> Groups:
    """Return room for `count` groups."""
    return Groups(np.empty(count), np.empty(count, np.int64), np.empty(count, np.int64))


def groups_due(
    room: WaitingRows, spans: Spans, pieces: int, until: float, groups: Groups
) -> tuple[Groups, int]:
    """Take out the changes of the first `pieces` pieces that are due at or before `until`.

    Return them as groups, piece after piece, and how many changes they are. `groups` has room for one each.
    """
    found, count = _take_due(room, spans, pieces, until, groups)
    return mapped(groups, lambda column: column[:found]), count


def gathered(room: WaitingRows, groups: Groups, order: npt.NDArray[np.intp], count: int) -> Changes:
    """Return the `count` changes of the groups, one group after the other in `order`."""
    changes = Changes(*[np.empty(count, WAITING[name]) for name in _OF_CHANGES])
    _gather(room, groups, order, changes)
    return changes


@compiled
def move(room: WaitingRows, spans: Spans, pieces: int, into: WaitingRows) -> None:
    """Move the waiting changes of the first `pieces` pieces to the beginning of `into`, maybe `room` itself.

    Pieces without waiting changes are left out.
    """
    room, spans, into = borrowed(room), borrowed(spans), borrowed(into)
    to, kept = 0, 0
    for piece in range(pieces):
        begin, end = spans.begin[piece], spans.end[piece]
        if begin == end:
            continue
        spans.begin[kept] = to
        spans.next_due[kept] = spans.next_due[piece]
        for at in range(begin, end):
            into[to] = room[at]
            into[to].piece = kept
            to += 1
        spans.end[kept] = to
        kept += 1


@compiled
def _take_due(room: WaitingRows, spans: Spans, pieces: int, until: float, groups: Groups) -> tuple[int, int]:
    room, spans, groups = borrowed(room), borrowed(spans), borrowed(groups)
    found, count = 0, 0
    for piece in range(pieces):
        if spans.next_due[piece] > until or spans.begin[piece] == spans.end[piece]:
            continue
        at, end = spans.begin[piece], spans.end[piece]
        count -= at
        time = spans.next_due[piece]
        while at < end and time <= until:
            groups.due[found] = time
            groups.begin[found] = at
            at += 1
            while at < end and room[at].due == time:
                at += 1
            groups.lengths[found] = at - groups.begin[found]
            found += 1
            time = room[at].due if at < end else np.inf
        count += at
        spans.begin[piece] = at
        spans.next_due[piece] = time
    return found, count


@compiled
def _gather(room: WaitingRows, groups: Groups, order: npt.NDArray[np.intp], taken: Changes) -> None:
    room, groups, order, taken = borrowed(room), borrowed(groups), borrowed(order), borrowed(taken)
    to = 0
    for number in range(len(order)):
        if number + _AHEAD < len(order):
            fetch_ahead(room, groups.begin[order[number + _AHEAD]])
        group = order[number]
        begin = groups.begin[group]
        for at in range(begin, begin + groups.lengths[group]):
            taken.keys[to] = room[at].key
            taken.kinds[to] = room[at].kind
            taken.times[to] = room[at].time
            taken.sizes[to] = room[at].size
            taken.stored[to] = room[at].stored
            taken.pieces[to] = room[at].piece
            taken.roots[to] = room[at].root
            taken.depths[to] = room[at].depth
            taken.lineages[to] = room[at].lineage
            taken.runs[to] = room[at].run
            to += 1
