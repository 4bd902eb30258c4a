"""Whether the residency topic says what the events say, as far as the replica agent has committed."""

from __future__ import annotations

from typing import Literal

from pipeline.verify.findings import Findings
from pipeline.verify.fleet.beginning.undoing import Beginning
from pipeline.verify.fleet.parsed import columns_of
from pipeline.verify.replica.residency_sums import (
    ANY_SESSION,
    PoolOfSession,
    ResidencySums,
    Resident,
    compare,
    of_any_session,
)
from schemas.residency import FILLS, ResidencyRecord

ANEW = "the fleet agent began with nothing because the residency topic had lost its beginning"

_Begins = Literal["first", "later", "anew", "unknown"]
"""first: with the first record ever. later: some shard begins later, but what was resident then is known.
anew: the fleet agent began there with nothing; whether the replica agent did so, too, is unknown."""


class TopicCheck:
    """Sums over what the events say, and over what the residency topic says."""

    def __init__(self) -> None:
        self._begins: _Begins = "first"
        self._before: dict[PoolOfSession, ResidencySums] = {}
        """What was resident where shards begin whose beginning is gone; sessions are not distinguished."""
        self._committed: dict[int, int] = {}
        """Committed offsets of the partitions of the events topic that are there from their beginning."""
        self._wanted: dict[PoolOfSession, ResidencySums] = {}
        self._has: dict[PoolOfSession, ResidencySums] = {}

    def expect(self, partition: int, committed: int, wanted: dict[PoolOfSession, ResidencySums]) -> None:
        """Note what follows from the events of a partition before the replica agent's committed offset."""
        self._committed[partition] = committed
        self._wanted |= wanted

    def apply(self, record: ResidencyRecord) -> None:
        """Add a record of the residency topic, if it follows from events before a committed offset."""
        if record.next_offset > self._committed.get(record.partition, 0):
            return
        for source in record.sources:
            for pool in source.changes:
                sums = self._has.setdefault(
                    PoolOfSession(
                        source.replica,
                        source.dp_rank,
                        source.incarnation,
                        source.hash_domain,
                        pool.medium,
                        pool.group_idx,
                    ),
                    ResidencySums(),
                )
                columns = columns_of(pool)
                of_blocks = zip(columns.hashes, columns.kinds, strict=True)
                filled = Resident.of(block for block, kind in of_blocks if kind in FILLS)
                sums.resident += filled + filled - Resident.of(columns.hashes)
                if sums.changes is not None:
                    sums.changes.count_columns(columns)

    def begins_later(self, beginning: Beginning | None) -> None:
        """Note that the first records of a shard are gone; None if nothing shows what was resident then."""
        if beginning is None:
            self._begins = "unknown"
            return
        if self._begins != "unknown":
            self._begins = "anew" if beginning.whole or self._begins == "anew" else "later"
        for pool, held in beginning.held.items():
            space = pool.space
            key = PoolOfSession(*pool.source, ANY_SESSION, space.hash_domain, pool.medium, space.group_idx)
            self._before.setdefault(key, ResidencySums(changes=None)).resident += Resident.of(held)

    def finish(self, findings: Findings, *, unreadable: str | None = None) -> None:
        """Compare, when all records were added up; `unreadable`: why some could not be read yet."""
        if self._begins == "first":
            compare(self._wanted, self._has, findings, unreadable=unreadable)
        elif self._begins != "unknown":
            sources = {(key.replica, key.dp_rank) for key in self._wanted}
            before = {key: of for key, of in self._before.items() if (key.replica, key.dp_rank) in sources}
            wanted, has = of_any_session([self._wanted]), of_any_session([before, self._has])
            if self._begins == "anew":
                tried = Findings()
                compare(wanted, has, tried, unreadable=unreadable)
                if tried.differing:
                    findings.left_out[ANEW] += len(wanted)
                    return
            compare(wanted, has, findings, unreadable=unreadable)
