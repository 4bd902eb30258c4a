"""`kvlens verify` against a broker and a store."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from pipeline.decoding import decode_events, decode_residency
from pipeline.verify import log
from pipeline.verify.coarser_check import check_coarser
from pipeline.verify.expected import Row
from pipeline.verify.findings import Findings
from pipeline.verify.fleet.check import ShardCheck
from pipeline.verify.fleet.topic_check import TopicCheck
from pipeline.verify.source_check import BEFORE_THE_BEGINNING, SourceCheck
from pipeline.verify.store import StoredTables
from schemas.events import EventsRecord
from schemas.residency import ResidencyRecord
from schemas.settings import Settings

KEPT_FOR = timedelta(days=6, hours=20)
"""Ten-second rows younger than that are certainly still there: tables drop them after seven days."""
RECOMPUTED_FOR = timedelta(days=5, hours=20)
"""Minutes and hours younger than that follow from ten-second rows that are all there."""
SAMPLED = "estimates from a sample of the blocks (fleet.sample_rate)"

SourceId = tuple[str, int]


async def verify(settings: Settings, now: datetime, *, until: int | None, patience: float) -> Findings:
    """Recount the whole log and compare; `until`: leave records from this offset of each partition out.

    Raises KafkaUnavailable, TopicMissing and StoreUnavailable.
    """
    tables = await asyncio.to_thread(StoredTables, settings.clickhouse)
    comparison = _Comparison(settings, tables, now, until)
    findings = comparison.findings
    try:
        async with log.opened(settings, "events", agent="replica", decode=decode_events) as events:
            for partition in range(events.partitions):
                await comparison.partition(events, partition)
        # After the events, so that it has all that their reader had committed.
        async with log.opened(settings, "residency", agent="fleet", decode=decode_residency) as residency:
            for shard in range(residency.partitions):
                await comparison.shard(residency, shard)
        comparison.finish()
        await asyncio.to_thread(
            check_coarser, tables, findings, oldest=now - RECOMPUTED_FOR, patience=patience
        )
    finally:
        tables.close()
    return findings


@dataclass
class _Comparison:
    """One run through both topics."""

    settings: Settings
    tables: StoredTables
    now: datetime
    until: int | None
    findings: Findings = field(default_factory=Findings)
    topic: TopicCheck = field(default_factory=TopicCheck)

    async def partition(self, events: log.TopicLog[EventsRecord], partition: int) -> None:
        """Compare the sources of a partition of the events topic."""
        # In this order: all that was committed is in the rows read, and all they rest on is read after them.
        extent = await events.extent(partition)
        found = await asyncio.to_thread(_rows_by_source, self.tables, partition, events.partitions)
        end, committed = self._bounds(await events.end(partition), extent)
        checks: dict[SourceId, SourceCheck] = {}

        def check_of(source: SourceId) -> SourceCheck:
            if source not in checks:
                checks[source] = SourceCheck(
                    *source,
                    self.settings.worker,
                    found.pop(source, ()),
                    self.findings,
                    committed=committed,
                    whole=extent.begin == 0,
                    oldest=self.now - KEPT_FOR,
                )
            return checks[source]

        async for offset, record in events.records(partition, extent.begin, end):
            self._count(record)
            if record is not None:
                check_of((record.replica, record.dp_rank)).apply(offset, record)
        for source in list(found):
            check_of(source)
        for check in checks.values():
            check.finish(extent.begin, end)
            if extent.begin == 0:
                self.topic.said(partition, committed, check.told)

    async def shard(self, residency: log.TopicLog[ResidencyRecord], shard: int) -> None:
        """Compare the fleet's rows of a partition of the residency topic."""
        # In the order of `partition`, for the same reasons.
        extent = await residency.extent(shard)
        found = await asyncio.to_thread(lambda: list(self.tables.rows_of_shard(shard)))
        end, committed = self._bounds(await residency.end(shard), extent)
        if extent.begin > 0:
            self.topic.whole = False
            self.findings.left_out[BEFORE_THE_BEGINNING] += len(found)
            return
        check = None
        if self.settings.fleet.sample_rate < 1:
            self.findings.left_out[SAMPLED] += len(found)
        else:
            oldest = self.now - KEPT_FOR
            check = ShardCheck(
                shard,
                self.settings.fleet,
                found,
                self.findings,
                committed=committed,
                oldest=oldest,
                stood=committed == extent.committed,
            )
        async for offset, record in residency.records(shard, extent.begin, end):
            self._count(record)
            if record is not None:
                self.topic.apply(record)
                if check is not None:
                    check.apply(offset, record)
        if check is not None:
            check.finish(end)

    def finish(self) -> None:
        """Compare the topics with each other, unless a bound of offsets cuts them differently."""
        if self.until is None:
            self.topic.finish(self.findings)

    def _bounds(self, end: int, extent: log.Extent) -> tuple[int, int]:
        """Return before which offset to read, and before which everything must be in the tables."""
        if self.until is None:
            return end, extent.committed
        return min(end, self.until), min(extent.committed, self.until)

    def _count(self, record: EventsRecord | ResidencyRecord | None) -> None:
        self.findings.records += 1
        self.findings.undecodable_records += record is None


def _rows_by_source(tables: StoredTables, partition: int, partitions: int) -> dict[SourceId, list[Row]]:
    rows: dict[SourceId, list[Row]] = {}
    for row in tables.rows_of_partition(partition, partitions):
        rows.setdefault((row.replica, row.dp_rank), []).append(row)
    return rows
