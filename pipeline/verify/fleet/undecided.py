"""Changes that wait until their source says whether it receives KV, by the rules of docs/figures.md."""

from __future__ import annotations

import math

import msgspec

from pipeline.verify.fleet.parsed import columns_of
from pipeline.verify.keys import SourceId
from schemas.fleet_checkpoints import FleetUndecided
from schemas.residency import ResidencyRecord, SourceChanges

LONGEST = 15.0
"""Seconds of event time."""


class Undecided:
    """What waits, of all sources in the order of the log."""

    def __init__(self, before: FleetUndecided) -> None:
        """`before`: what waits where the log begins."""
        self._waiting = [*before.changes]
        self._given_up = {*before.given_up}

    @property
    def count(self) -> int:
        """Return how many changes wait."""
        return sum(len(pool.kinds) for said in self._waiting for pool in said.changes)

    def waits_of(self, source: SourceId) -> bool:
        """Return whether some change of a source waits."""
        return any(_name(said) == source for said in self._waiting)

    def forget(self, source: SourceId) -> None:
        """Forget a source of which nothing waits."""
        self._given_up.discard(source)

    def of(self, record: ResidencyRecord) -> list[ResidencyRecord]:
        """Return what need not wait now that this record came, of it and of earlier ones, as records."""
        if not record.partitions:
            return [record]
        known = {*map(_name, self._waiting), *self._given_up}
        touched = {_name(said) for said in record.sources if said.undecided or _name(said) in known}
        records = [_with(record, [said for said in record.sources if _name(said) not in touched])]
        for said in record.sources:
            name = _name(said)
            if name not in touched:
                continue
            if not said.undecided:
                self._given_up -= {name}
                records += [_with(record, [one]) for one in self._take(name, said)]
            elif name not in self._given_up:
                self._waiting.append(said)
                continue
            if said.changes:
                records.append(_with(record, [said]))
        return records

    def give_up(self, record: ResidencyRecord, until: float, most: int) -> list[ResidencyRecord]:
        """Return what was not decided in time for changes up to `until`; all if more than `most` wait."""
        every = self.count > most
        # In the order in which they came, as the agent takes them: it decides which session is the first of
        # those that hash alike.
        names = dict.fromkeys(
            _name(said)
            for said in self._waiting
            if every or min(_times(said), default=math.inf) < until - LONGEST
        )
        self._given_up.update(names)
        return [_with(record, [said]) for name in names for said in self._take(name, None)]

    def before(self, until: float) -> float:
        """Return up to which event time changes may count: `until`, or before the first that waits here."""
        waits = [time for said in self._waiting for time in _times(said)]
        return min([until, *(math.nextafter(time, 0.0) for time in waits)])

    def _take(self, name: SourceId, by: SourceChanges | None) -> list[SourceChanges]:
        taken = [said for said in self._waiting if _name(said) == name]
        self._waiting = [said for said in self._waiting if _name(said) != name]
        return [
            msgspec.structs.replace(
                said,
                receives=by is not None and by.incarnation == said.incarnation and by.receives,
                undecided=False,
            )
            for said in taken
        ]


def _name(said: SourceChanges) -> SourceId:
    return said.replica, said.dp_rank


def _with(record: ResidencyRecord, sources: list[SourceChanges]) -> ResidencyRecord:
    return msgspec.structs.replace(record, sources=sources)


def _times(said: SourceChanges) -> list[float]:
    return [time for pool in said.changes for time in columns_of(pool).times]
