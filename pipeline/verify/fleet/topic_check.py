"""Whether the residency topic says what the events say, as far as the replica agent has committed."""

from __future__ import annotations

from pipeline.verify.findings import Findings
from pipeline.verify.fleet.parsed import parsed
from pipeline.verify.replica.residency_sums import PoolOfLife, ResidencySums, compare
from schemas.residency import FILLED, ResidencyRecord


class TopicCheck:
    """Sums over what the events say, and over what the residency topic says."""

    def __init__(self) -> None:
        self.whole = True
        """Whether the residency topic is there from its beginning."""
        self._committed: dict[int, int] = {}
        """Offset by partition of the events topic, of those that are there from their beginning."""
        self._wanted: dict[PoolOfLife, ResidencySums] = {}
        self._has: dict[PoolOfLife, ResidencySums] = {}

    def expect(self, partition: int, committed: int, wanted: dict[PoolOfLife, ResidencySums]) -> None:
        """Take what the events of a partition say before the replica agent's committed offset."""
        self._committed[partition] = committed
        self._wanted |= wanted

    def apply(self, record: ResidencyRecord) -> None:
        """Add up a record of the residency topic, if its changes are among those."""
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
                for one in parsed(pool):
                    sign = 1 if one.kind == FILLED else -1
                    sums.resident.blocks += sign
                    sums.resident.hashes += sign * one.hash
                    if sums.changes is not None:
                        sums.changes.count(one.kind, one.hash, one.at, one.size, one.stored)

    def finish(self, findings: Findings, *, unreadable: str | None = None) -> None:
        """Compare, when all records were added up; `unreadable`: why some could not be read yet."""
        if self.whole:
            compare(self._wanted, self._has, findings, unreadable=unreadable)
