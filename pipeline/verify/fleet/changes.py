"""Residency records as single changes, in the order in which they count."""

from __future__ import annotations

import math
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from schemas.hashes import unpack_hashes
from schemas.residency import FILLED, SUBSUMED, ResidencyChanges, ResidencyRecord, SourceChanges
from schemas.trust import Trust

NEVER_REMOVED = ("storage", "fs", "obj")
"""Media of which engines announce what they store and never what they drop."""

SourceId = tuple[str, int]
"""Replica and data-parallel rank."""


class Block(NamedTuple):
    """What compares: the same hash in another hash domain or group is another block."""

    hash_domain: str
    group_idx: int
    hash: int


class Change(NamedTuple):
    """A block came to a source's medium, or left it."""

    source: SourceId
    model: str
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

    def times(self, life: int, times: tuple[float, ...]) -> list[float]:
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
                times = struct.unpack(f"<{len(pool.kinds)}d", pool.times)
                due = orders.setdefault(name, _Order()).times(source.life, times)
                of_pool = _changes(said, pool, times, source.life, unsure_until)
                changes += [(due[place], change) for place, change in _counting(list(of_pool))]
                source.seen = max([source.seen, *times])
            if said.trust != "complete":
                source.unsure_until = source.seen + self._horizon
        return [change for _, change in sorted(changes, key=lambda one: one[0])]


def _changes(
    said: SourceChanges, pool: ResidencyChanges, times: tuple[float, ...], life: int, unsure_until: float
) -> Iterator[Change]:
    count = len(pool.kinds)
    stored = struct.unpack(f"<{count}I", pool.stored) if pool.stored else [None] * count
    sizes = struct.unpack(f"<{count}I", pool.block_sizes)
    for one, kind, at, size, more in zip(
        unpack_hashes(pool.hashes), pool.kinds, times, sizes, stored, strict=True
    ):
        yield Change(
            (said.replica, said.dp_rank),
            said.model,
            life,
            Block(said.hash_domain, pool.group_idx, one),
            pool.medium,
            not pool.store_only and pool.medium not in NEVER_REMOVED,
            kind,
            at,
            size,
            None if more is None else pool.stored_before + more,
            said.trust,
            unsure_until,
        )


def _counting(changes: list[Change]) -> Iterator[tuple[int, Change]]:
    """Give place and change, without fine blocks that a coarse one takes over in the same record."""
    left_out: set[int] = set()
    filled: dict[Block, int] = {}
    for place, change in enumerate(changes):
        if change.kind == FILLED:
            filled[change.block] = place
        elif change.kind == SUBSUMED and change.block in filled:
            left_out |= {place, filled.pop(change.block)}
    for place, change in enumerate(changes):
        if place not in left_out:
            yield place, change
