"""`kvlens verify` against a broker and a store."""

from __future__ import annotations

import asyncio
from datetime import datetime, timedelta

from pipeline.decoding import decode_events, decode_residency
from pipeline.verify import log
from pipeline.verify.coarser_check import check_coarser
from pipeline.verify.expected import Row
from pipeline.verify.findings import Findings
from pipeline.verify.fleet.check import ShardCheck
from pipeline.verify.source_check import BEFORE_THE_BEGINNING, SourceCheck
from pipeline.verify.store import StoredTables
from schemas.events import EventsRecord
from schemas.residency import ResidencyRecord
from schemas.settings import Settings

KEPT_FOR = timedelta(days=6, hours=20)
"""Ten-second rows younger than that are certainly still there: tables drop them after seven days."""
RECOMPUTED_FOR = timedelta(days=5, hours=20)
"""Minutes and hours younger than that follow from ten-second rows that are all there."""

SAMPLED = "they rest on a sample of the blocks (fleet.sample_rate)"

SourceId = tuple[str, int]


async def verify(settings: Settings, now: datetime, *, until: int | None, patience: float) -> Findings:
    """Recount the whole log and compare; `until`: leave records from this offset of each partition out.

    Raises KafkaUnavailable, TopicMissing and StoreUnavailable.
    """
    findings = Findings()
    tables = await asyncio.to_thread(StoredTables, settings.clickhouse)
    try:
        async with log.opened(settings, "events", agent="replica", decode=decode_events) as events:
            for partition in range(events.partitions):
                await _partition(settings, events, tables, partition, findings, now, until)
        async with log.opened(settings, "residency", agent="fleet", decode=decode_residency) as residency:
            for shard in range(residency.partitions):
                await _shard(settings, residency, tables, shard, findings, now, until)
        await asyncio.to_thread(
            check_coarser, tables, findings, oldest=now - RECOMPUTED_FOR, patience=patience
        )
    finally:
        tables.close()
    return findings


async def _partition(
    settings: Settings,
    events: log.TopicLog[EventsRecord],
    tables: StoredTables,
    partition: int,
    findings: Findings,
    now: datetime,
    until: int | None,
) -> None:
    # In this order: all that was committed is in the rows read, and all they rest on is read after them.
    extent = await events.extent(partition)
    found = await asyncio.to_thread(_rows_by_source, tables, partition, events.partitions)
    end = await events.end(partition)
    committed = extent.committed
    if until is not None:
        end, committed = min(end, until), min(committed, until)
    checks: dict[SourceId, SourceCheck] = {}

    def check_of(source: SourceId) -> SourceCheck:
        if source not in checks:
            checks[source] = SourceCheck(
                *source,
                settings.worker,
                found.pop(source, ()),
                findings,
                committed=committed,
                whole=extent.begin == 0,
                oldest=now - KEPT_FOR,
            )
        return checks[source]

    async for offset, record in events.records(partition, extent.begin, end):
        findings.records += 1
        if record is None:
            findings.undecodable_records += 1
        else:
            check_of((record.replica, record.dp_rank)).apply(offset, record)
    for source in list(found):
        check_of(source)
    for check in checks.values():
        check.finish(extent.begin, end)


async def _shard(
    settings: Settings,
    residency: log.TopicLog[ResidencyRecord],
    tables: StoredTables,
    shard: int,
    findings: Findings,
    now: datetime,
    until: int | None,
) -> None:
    # In the order of `_partition`, for the same reasons.
    extent = await residency.extent(shard)
    found = await asyncio.to_thread(lambda: list(tables.rows_of_shard(shard)))
    end = await residency.end(shard)
    committed = extent.committed
    if until is not None:
        end, committed = min(end, until), min(committed, until)
    reason = _why_not(settings, extent)
    if reason is not None:
        findings.left_out[reason] += len(found)
        return
    check = ShardCheck(shard, settings.fleet, found, findings, committed=committed, oldest=now - KEPT_FOR)
    async for offset, record in residency.records(shard, extent.begin, end):
        findings.records += 1
        if record is None:
            findings.undecodable_records += 1
        else:
            check.apply(offset, record)
    check.finish(end)


def _why_not(settings: Settings, extent: log.Extent) -> str | None:
    """Return why the rows of a shard cannot be compared."""
    if settings.fleet.sample_rate < 1:
        return SAMPLED
    if extent.begin > 0:
        return BEFORE_THE_BEGINNING
    return None


def _rows_by_source(tables: StoredTables, partition: int, partitions: int) -> dict[SourceId, list[Row]]:
    rows: dict[SourceId, list[Row]] = {}
    for row in tables.rows_of_partition(partition, partitions):
        rows.setdefault((row.replica, row.dp_rank), []).append(row)
    return rows
