"""Whether the residency topic says what the events say, as far as the replica agent has committed."""

from __future__ import annotations

from typing import Literal

from pipeline.verify.findings import Findings
from pipeline.verify.fleet.beginning.undoing import Beginning
from pipeline.verify.fleet.parsed import columns_of
from pipeline.verify.replica.residency_sums import (
    ANY_LIFE,
    PoolOfLife,
    ResidencySums,
    compare,
    of_any_life,
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
        self._before: dict[PoolOfLife, ResidencySums] = {}
        """What was resident where shards begin whose beginning is gone; sessions are not distinguished."""
        self._committed: dict[int, int] = {}
        """Committed offsets of the partitions of the events topic that are there from their beginning."""
        self._wanted: dict[PoolOfLife, ResidencySums] = {}
        self._has: dict[PoolOfLife, ResidencySums] = {}

    def expect(self, partition: int, committed: int, wanted: dict[PoolOfLife, ResidencySums]) -> None:
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
                    PoolOfLife(
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
                hashes, kinds = columns.hashes, columns.kinds
                filled = [block for block, kind in zip(hashes, kinds, strict=True) if kind in FILLS]
                sums.resident.blocks += 2 * len(filled) - len(hashes)
                sums.resident.hashes += 2 * sum(filled) - sum(hashes)
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
            key = PoolOfLife(*pool.source, ANY_LIFE, space.hash_domain, pool.medium, space.group_idx)
            before = self._before.setdefault(key, ResidencySums(changes=None)).resident
            before.blocks += len(held)
            before.hashes += sum(held)

    def finish(self, findings: Findings, *, unreadable: str | None = None) -> None:
        """Compare, when all records were added up; `unreadable`: why some could not be read yet."""
        if self._begins == "first":
            compare(self._wanted, self._has, findings, unreadable=unreadable)
        elif self._begins != "unknown":
            sources = {(key.replica, key.dp_rank) for key in self._wanted}
            before = {key: of for key, of in self._before.items() if (key.replica, key.dp_rank) in sources}
            wanted, has = of_any_life([self._wanted]), of_any_life([before, self._has])
            if self._begins == "anew":
                tried = Findings()
                compare(wanted, has, tried, unreadable=unreadable)
                if tried.differing:
                    findings.left_out[ANEW] += len(wanted)
                    return
            compare(wanted, has, findings, unreadable=unreadable)
