"""Estimates what a comparison will cost: time from a trial, memory from the number of rows."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import datetime, timezone

from connectors.process.leaving import aside
from pipeline.kafka.refusal import RecordRefused
from pipeline.verify.findings import Findings
from pipeline.verify.fleet.beginning.undoing import Undoing
from pipeline.verify.fleet.check import ShardCheck, Written
from pipeline.verify.fleet.topic_check import TopicCheck
from pipeline.verify.progress import Progress, ReadingCost
from pipeline.verify.replica.partition import PartitionCheck
from pipeline.verify.store import StoredTables
from pipeline.verify.topic_log import Record, TopicLog
from schemas.events import EventsRecord
from schemas.residency import ResidencyRecord
from schemas.settings import Settings

ROW_BYTES = 1_500
"""Memory of a row and its key, at most; half as much once the row is compared."""
PARTS = 4
"""Partitions that are tried: the longest ones."""
SECONDS = 0.5
"""Length of the trial of each of them."""
_SMALL = 2_000
"""A topic with fewer offsets is not worth a trial."""
_EVERYTHING = 1 << 62
"""An offset behind all others."""


async def estimate(
    progress: Progress,
    settings: Settings,
    tables: StoredTables,
    events: TopicLog[EventsRecord],
    residency: TopicLog[ResidencyRecord],
    until: int | None,
) -> None:
    """Show what the comparison will cost, if the output is a terminal; this takes a few seconds itself."""
    progress.expect("events", sum((await events.lengths(until)).values()))
    progress.expect("residency", sum((await residency.lengths(until)).values()))
    if not progress.watched:
        return
    progress.step("trying how long it takes")
    recount = _ThrownAway(
        settings, {n: (await residency.extent(n)).begin for n in range(residency.partitions)}
    )
    costs = {
        "events": await tried(events, until, recount.events),
        "residency": await tried(residency, until, recount.residency),
    }
    rows = await aside(
        lambda: tables.rows_by_partition(events.partitions) + tables.rows_by_shard(residency.partitions)
    )
    progress.estimate(
        {topic: cost for topic, cost in costs.items() if cost is not None}, max(rows) * ROW_BYTES / 1e6
    )


async def tried(
    log: TopicLog[Record],
    until: int | None,
    recount: Callable[[int, int, Record], None],
    clock: Callable[[], float] = time.monotonic,
) -> ReadingCost | None:
    """Return what reading a whole topic will cost; None if it is too short for a trial.

    `recount` gets partition, offset and record, as the comparison will. The trial reads the longest
    partitions from their middle on, without any state from before.
    """
    lengths = await log.lengths(until)
    total = sum(lengths.values())
    if total < _SMALL:
        return None
    spent, passed, read = 0.0, 0, 0
    for partition in sorted(lengths, key=lambda one: -lengths[one])[:PARTS]:
        length = lengths[partition]
        if not length:
            break
        end = min(await log.end(partition), until) if until is not None else await log.end(partition)
        first = last = end - length // 2
        began = None
        async for offset, record in log.records(partition, first, end):
            # The wait for the first record does not recur while reading on, so it does not count.
            began = clock() if began is None else began
            if not isinstance(record, RecordRefused):
                recount(partition, offset, record)
            read += log.record_bytes
            last = offset + 1
            if clock() - began > SECONDS:
                break
        if began is not None:
            spent += clock() - began
            passed += last - first
    if not passed:
        return None
    return ReadingCost(total, spent / passed * total, read / passed * total / 1e6)


class _ThrownAway:
    """Processes records as the comparison does, only to see how long that takes."""

    def __init__(self, settings: Settings, begins: dict[int, int]) -> None:
        """`begins`: where the partitions of the residency topic begin."""
        self._settings = settings
        self._begins = begins
        self._now = datetime.now(timezone.utc)
        self._partitions: dict[int, PartitionCheck] = {}
        self._shards: dict[int, ShardCheck] = {}
        self._topic = TopicCheck()
        self._undoing = Undoing(None)

    def events(self, partition: int, offset: int, record: EventsRecord) -> None:
        check = self._partitions.get(partition)
        if check is None:
            check = self._partitions[partition] = PartitionCheck(
                self._settings.worker, {}, Findings(), begin=0, committed=_EVERYTHING, oldest=self._now
            )
        check.apply(offset, record)

    def residency(self, partition: int, offset: int, record: ResidencyRecord) -> None:
        check = self._shards.get(partition)
        if check is None:
            check = self._shards[partition] = ShardCheck(
                partition,
                self._settings.fleet,
                (),
                Findings(),
                Written(_EVERYTHING, self._now),
                forget_seconds=self._settings.worker.forget_seconds,
            )
        self._topic.expect(record.partition, _EVERYTHING, {})
        self._topic.apply(record)
        check.apply(offset, record)
        if self._begins[partition]:
            self._undoing.undo(record)
