"""Residency records as single changes, in the order in which they count."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import accumulate, repeat
from operator import itemgetter
from typing import NamedTuple

from pipeline.kafka.refusal import RecordRefused
from pipeline.verify.fleet.parsed import Chain, chains_of, columns_of, counting, ends_of
from pipeline.verify.keys import SourceId
from schemas.residency import ResidencyChanges, ResidencyRecord
from schemas.trust import Trust


def removals_announced(pool: ResidencyChanges) -> bool:
    """Return whether what is held on the medium of these changes is certain, as it always is on a GPU."""
    return pool.medium == "gpu" or not pool.store_only


RECEIVED_LATER = 2.0
"""Seconds after event time at which changes of a source that receives KV count."""
TOLD_APART = {True: 8, False: 6}
"""Media, by whether removals are announced: those that come later count as the last of these."""


class Space(NamedTuple):
    """Hashes compare only inside one; the same hash of another domain, model or group is another block."""

    hash_domain: str
    model: str
    group_idx: int


@dataclass(frozen=True, slots=True, eq=False)
class Piece:
    """What the changes of one pool in a record have in common; two are never equal."""

    source: SourceId
    incarnation: int
    session_number: int
    """Number of the source's session, counting its incarnations."""
    space: Space
    medium: str
    announced: bool
    """Whether removals are announced on this medium, so that what is held there is certain."""
    trust: Trust
    """Of the source."""
    unsure_until: float
    """Event time up to which the source may have losses that nobody knows of."""
    receives: bool
    """Whether the source may announce what was transferred to it."""
    alone: bool = False
    """Whether the source counts as hashing differently."""


class Change(NamedTuple):
    """A block came to a source's medium, or left it."""

    due: float
    """Event time as of which it counts."""
    of: Piece
    hash: int
    kind: int
    """As in `schemas.residency`."""
    at: float
    """Event time."""
    size: int
    """Tokens."""
    stored: int | None
    """Tokens stored in the pool before."""
    chain: Chain
    """Of what was filled."""
    end: int
    """Last block of the run that it was filled with, 0 where it came alone."""


_due = itemgetter(0)


@dataclass
class _Source:
    incarnation: int = 0
    session_number: int = 0
    seen: float = 0.0
    """Latest event time."""
    unsure_until: float = 0.0
    reached: float = -math.inf
    """Time as of which its last change counts."""


class _Order:
    """Times as of which the changes of one source in a record count: no session, and no record, begins before
    the end of the last."""

    def __init__(self, reached: float) -> None:
        self._session: int | None = None
        self._floor = reached
        self.reached = reached

    def times(self, session: int, times: Sequence[float]) -> list[float]:
        """Return the times of one pool's changes; one that goes back counts as the latest before it."""
        if session != self._session:
            self._session, self._floor = session, self.reached
        due = list(accumulate(times, max, initial=self._floor))[1:]
        if due:
            self.reached = max(self.reached, due[-1])
        return due


class ChangesInOrder:
    """Reads the records of a shard; remembers what earlier ones said of the sources."""

    def __init__(self, horizon: float) -> None:
        self._horizon = horizon
        self._sources: dict[SourceId, _Source] = {}
        self._media: dict[bool, list[str]] = {True: ["gpu"], False: []}
        """Those that are told apart, in the order in which they came."""

    def of(self, record: ResidencyRecord, alone: Callable[[SourceId], bool]) -> list[Change]:
        """Return the changes of a record in the order of event time; equal times keep the record's order.

        `alone` says whether a source counts as hashing differently.
        """
        changes: list[Change] = []
        orders: dict[SourceId, _Order] = {}
        for said in record.sources:
            name = (said.replica, said.dp_rank)
            source = self._sources.setdefault(name, _Source())
            if said.incarnation > source.incarnation:
                source.incarnation = said.incarnation
                source.session_number += 1
            unsure_until = source.unsure_until
            for pool in said.changes:
                piece = Piece(
                    name,
                    said.incarnation,
                    source.session_number,
                    Space(said.hash_domain, said.model, pool.group_idx),
                    self._medium(pool),
                    removals_announced(pool),
                    said.trust,
                    unsure_until,
                    said.receives,
                    alone(name),
                )
                columns = columns_of(pool)
                order = orders.setdefault(name, _Order(source.reached))
                later = RECEIVED_LATER if said.receives else 0.0
                due = order.times(source.session_number, [time + later for time in columns.times])
                of_pool = list(
                    map(
                        Change,
                        due,
                        repeat(piece),
                        columns.hashes,
                        columns.kinds,
                        columns.times,
                        columns.sizes,
                        columns.stored,
                        chains_of(pool),
                        ends_of(pool),
                    )
                )
                changes += [of_pool[index] for index in counting(columns)]
                source.seen = max([source.seen, *columns.times])
            if said.trust != "complete":
                source.unsure_until = max(source.unsure_until, source.seen + self._horizon)
        for name, order in orders.items():
            self._sources[name].reached = order.reached
        changes.sort(key=_due)
        return changes

    def _medium(self, pool: ResidencyChanges) -> str:
        """Return the name under which the medium of these changes counts."""
        announced = removals_announced(pool)
        known = self._media[announced]
        if pool.kinds and pool.medium not in known and len(known) < TOLD_APART[announced]:
            known.append(pool.medium)
        return pool.medium if pool.medium in known or not known else known[-1]

    def silent_since(self, before: float) -> list[SourceId]:
        """Return the sources without a change at this event time or later."""
        return [name for name, source in self._sources.items() if source.seen < before]

    def forget(self, name: SourceId) -> None:
        """Forget all about a source."""
        del self._sources[name]

    def set_aside(self, refused: RecordRefused, clock: float) -> None:
        """Note that what the sources of this record lost up to now, event time `clock`, may not be known."""
        for (replica, dp_rank), source in self._sources.items():
            if refused.names(replica, dp_rank):
                until = max(source.seen, clock) + self._horizon
                source.unsure_until = max(source.unsure_until, until)
