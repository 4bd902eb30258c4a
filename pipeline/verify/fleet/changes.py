"""Residency records as single changes, in the order in which they count."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from pipeline.kafka.refusal import RecordRefused
from pipeline.verify.fleet.parsed import Chain, parsed
from schemas.residency import FILLED, SUBSUMED, ResidencyRecord
from schemas.trust import Trust

NEVER_REMOVED = ("storage", "fs", "obj")
"""Media of which engines announce what they store and never what they drop."""

SourceId = tuple[str, int]
"""Replica and data-parallel rank."""


class Block(NamedTuple):
    """What compares: the same hash in another hash domain, of another model or group is another block."""

    hash_domain: str
    model: str
    group_idx: int
    hash: int


class Change(NamedTuple):
    """A block came to a source's medium, or left it."""

    source: SourceId
    life: int
    """Counts the incarnations of the source."""
    block: Block
    medium: str
    announced: bool
    """Whether removals are announced on this medium, so that what is held there is certain."""
    kind: int
    """As in `schemas.residency`."""
    at: float
    """Event time."""
    size: int
    """Tokens."""
    stored: int | None
    """Tokens stored in the pool before."""
    trust: Trust
    """Of the source."""
    unsure_until: float
    """Event time up to which the source may have lost what nobody knows of."""
    chain: Chain
    """Of what was filled."""


@dataclass
class _Source:
    incarnation: int = 0
    life: int = 0
    seen: float = 0.0
    """Latest event time."""
    unsure_until: float = 0.0


class _Order:
    """Times as which the changes of one source count within a record: a life never begins before the last."""

    def __init__(self) -> None:
        self._life: int | None = None
        self._floor = -math.inf
        self._reached = -math.inf

    def times(self, life: int, times: list[float]) -> list[float]:
        """Return the times of one pool's changes; what goes back counts as the latest before."""
        if life != self._life:
            self._life, self._floor = life, self._reached
        due: list[float] = []
        for at in times:
            due.append(max(at, due[-1] if due else self._floor))
        if due:
            self._reached = max(self._reached, due[-1])
        return due


class ChangesInOrder:
    """Reads the records of a shard; remembers what earlier ones said of the sources."""

    def __init__(self, horizon: float) -> None:
        self._horizon = horizon
        self._sources: dict[SourceId, _Source] = {}

    def of(self, record: ResidencyRecord) -> list[Change]:
        """Return the changes of a record by event time; what is equal stays in its order."""
        changes: list[tuple[float, Change]] = []
        orders: dict[SourceId, _Order] = {}
        for said in record.sources:
            name = (said.replica, said.dp_rank)
            source = self._sources.setdefault(name, _Source())
            if said.incarnation > source.incarnation:
                source.incarnation = said.incarnation
                source.life += 1
            unsure_until = source.unsure_until
            for pool in said.changes:
                of_pool = [
                    Change(
                        name,
                        source.life,
                        Block(said.hash_domain, said.model, pool.group_idx, one.hash),
                        pool.medium,
                        not pool.store_only and pool.medium not in NEVER_REMOVED,
                        one.kind,
                        one.at,
                        one.size,
                        one.stored,
                        said.trust,
                        unsure_until,
                        one.chain,
                    )
                    for one in parsed(pool)
                ]
                times = [change.at for change in of_pool]
                due = orders.setdefault(name, _Order()).times(source.life, times)
                changes += [(due[index], change) for index, change in _counting(of_pool)]
                source.seen = max([source.seen, *times])
            if said.trust != "complete":
                source.unsure_until = source.seen + self._horizon
        return [change for _, change in sorted(changes, key=lambda one: one[0])]

    def silent_since(self, before: float) -> list[SourceId]:
        """Return the sources without a change at this event time or later."""
        return [name for name, source in self._sources.items() if source.seen < before]

    def forget(self, name: SourceId) -> None:
        """Know nothing of a source any more."""
        del self._sources[name]

    def set_aside(self, refused: RecordRefused) -> None:
        """What these sources lost up to now may not be known."""
        for (replica, dp_rank), source in self._sources.items():
            if refused.names(replica, dp_rank):
                source.unsure_until = max(source.unsure_until, source.seen + self._horizon)


def _counting(changes: list[Change]) -> Iterator[tuple[int, Change]]:
    """Give index and change, without fine blocks that a coarse one takes over in the same record."""
    left_out: set[int] = set()
    filled: dict[Block, int] = {}
    for index, change in enumerate(changes):
        if change.kind == FILLED:
            filled[change.block] = index
        elif change.kind == SUBSUMED and change.block in filled:
            left_out |= {index, filled.pop(change.block)}
    for index, change in enumerate(changes):
        if index not in left_out:
            yield index, change
