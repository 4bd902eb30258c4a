"""What a comparison will take: time by a trial, memory by the number of rows."""

from __future__ import annotations

import asyncio
from datetime import datetime, timezone

from pipeline.verify.findings import Findings
from pipeline.verify.fleet.beginning import Undoing
from pipeline.verify.fleet.check import ShardCheck
from pipeline.verify.fleet.topic_check import TopicCheck
from pipeline.verify.progress import Progress
from pipeline.verify.replica.check import SourceCheck
from pipeline.verify.store import StoredTables
from pipeline.verify.topic_log import TopicLog
from pipeline.verify.trial import tried
from schemas.events import EventsRecord
from schemas.residency import ResidencyRecord
from schemas.settings import Settings

ROW_BYTES = 1_500
"""Of a row and its key, at most; half of it once the row is compared."""
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
    """Say what all of it will take, if anybody watches; takes some seconds itself."""
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
    rows = await asyncio.to_thread(
        lambda: tables.rows_by_partition(events.partitions) + tables.rows_by_shard(residency.partitions)
    )
    progress.estimate(
        {topic: cost for topic, cost in costs.items() if cost is not None}, max(rows) * ROW_BYTES / 1e6
    )


class _ThrownAway:
    """Does with records what the comparison does, to see how long that takes."""

    def __init__(self, settings: Settings, begins: dict[int, int]) -> None:
        """`begins`: where the partitions of the residency topic begin."""
        self._settings = settings
        self._begins = begins
        self._now = datetime.now(timezone.utc)
        self._sources: dict[tuple[str, int], SourceCheck] = {}
        self._shards: dict[int, ShardCheck] = {}
        self._topic = TopicCheck()
        self._undoing = Undoing(None)

    def events(self, _partition: int, offset: int, record: EventsRecord) -> None:
        name = (record.replica, record.dp_rank)
        check = self._sources.get(name)
        if check is None:
            check = self._sources[name] = SourceCheck(
                *name,
                self._settings.worker,
                (),
                Findings(),
                committed=_EVERYTHING,
                whole=True,
                oldest=self._now,
            )
        check.apply(offset, record)

    def residency(self, partition: int, offset: int, record: ResidencyRecord) -> None:
        check = self._shards.get(partition)
        if check is None:
            check = self._shards[partition] = ShardCheck(
                partition, self._settings.fleet, (), Findings(), committed=_EVERYTHING, oldest=self._now
            )
        self._topic.expect(record.partition, _EVERYTHING, {})
        self._topic.apply(record)
        check.apply(offset, record)
        if self._begins[partition]:
            self._undoing.undo(record)
