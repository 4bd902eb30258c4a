"""Changes of engines whose counters do not show yet whether they receive KV: they wait until these do."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence

import msgspec
import numpy as np

from pipeline.fleet.acceptance import is_acceptable
from pipeline.fleet.packing import Packed, Table
from schemas.fleet_checkpoints import FleetUndecided, SourceName, TableName
from schemas.residency import ResidencyRecord, SourceChanges

LONGEST = 15.0
"""Seconds of event time that they wait at most; engines' metrics pages are read every five seconds."""

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(FleetUndecided).decode


class Undecided:
    """Undecided changes of sources, in their order, and the sources whose changes no longer wait."""

    def __init__(self, packed: Packed) -> None:
        """`packed` has the tables of a base."""
        said = saved_in(packed)
        self._given_up = {*said.given_up}
        """Sources that were not decided in time, until they are, or are forgotten."""
        self._said: dict[SourceName, list[SourceChanges]] = {}
        for each in said.changes:
            self._said.setdefault(_name_of(each), []).append(each)
        self._since = {name: min(map(_earliest, of)) for name, of in self._said.items()}
        """Earliest event time of each source's waiting changes."""
        self.count = sum(map(_count_of, said.changes))
        """Changes that wait."""

    def copied(self) -> dict[TableName, Table]:
        """Return what a base needs."""
        if not self._said and not self._given_up:
            return {}
        every = [each for of in self._said.values() for each in of]
        packed = _encode(FleetUndecided(sorted(self._given_up), every))
        return {"undecided": [np.frombuffer(packed, np.uint8)]}

    @property
    def earliest(self) -> float:
        """Return the earliest event time of what waits; infinite: nothing does."""
        return min(self._since.values(), default=math.inf)

    def waits_of(self, name: SourceName) -> bool:
        """Return whether changes of a source wait."""
        return name in self._said

    def forget(self, name: SourceName) -> None:
        """Forget a source of which nothing waits."""
        self._given_up.discard(name)

    def decided(self, record: ResidencyRecord) -> list[ResidencyRecord]:
        """Return what is decided of this record and of the changes that waited, as records; the rest waits.

        Changes of a source that has undecided ones come as records of their own, one after the other.
        Nothing waits in a state that gets all records of a log (`partitions` is 0).
        """
        ours = {
            name
            for said in record.sources
            if (name := _name_of(said)) in self._said or name in self._given_up or said.undecided
        }
        if not ours or not record.partitions:
            return [record]
        others = [said for said in record.sources if _name_of(said) not in ours]
        found = [msgspec.structs.replace(record, sources=others)]
        for said in record.sources:
            name = _name_of(said)
            if name not in ours:
                continue
            if said.undecided and name not in self._given_up:
                self._wait(name, said)
                continue
            if not said.undecided:
                self._given_up.discard(name)
                found += self._taken(record, [name], said)
            if said.changes:
                found.append(msgspec.structs.replace(record, sources=[said]))
        return found

    def given_up(self, record: ResidencyRecord, until: float, most: int) -> list[ResidencyRecord]:
        """Return, as records like this one, what waited too long when event time is `until`, or everything if
        more than `most` changes wait; it counts as of sources that receive no KV."""
        every = self.count > most
        late = [name for name, since in self._since.items() if every or since < until - LONGEST]
        self._given_up |= {*late}
        return [*self._taken(record, late)]

    def _wait(self, name: SourceName, said: SourceChanges) -> None:
        self._said.setdefault(name, []).append(said)
        self._since[name] = min(self._since.get(name, math.inf), _earliest(said))
        self.count += _count_of(said)

    def _taken(
        self, record: ResidencyRecord, names: Iterable[SourceName], by: SourceChanges | None = None
    ) -> Iterator[ResidencyRecord]:
        """Yield what waited of sources: they received KV if `by` says so of the same session."""
        for name in names:
            self._since.pop(name, None)
            for said in self._said.pop(name, ()):
                self.count -= _count_of(said)
                receives = by is not None and by.receives and by.incarnation == said.incarnation
                now = msgspec.structs.replace(said, receives=receives, undecided=False)
                yield msgspec.structs.replace(record, sources=[now])


def saved_in(packed: Packed) -> FleetUndecided:
    """Return what a base has. Raises msgspec.DecodeError, and ValueError for what cannot be applied."""
    column: Sequence[bytes] = packed.get("undecided", ())
    if not column:
        return FleetUndecided()
    said = _decode(column[0])
    if not is_acceptable(ResidencyRecord(0, 0, 0, said.changes)):
        raise ValueError("undecided changes that no record may have")
    return said


def _name_of(said: SourceChanges) -> SourceName:
    return said.replica, said.dp_rank


def _count_of(said: SourceChanges) -> int:
    return sum(len(part.kinds) for part in said.changes)


def _earliest(said: SourceChanges) -> float:
    times = b"".join(part.times for part in said.changes)
    return float(np.frombuffer(times, "<f8").min(initial=math.inf))
