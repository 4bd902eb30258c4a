"""`kvlens verify`: recounts the topics and compares every table with them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable
from contextlib import AbstractAsyncContextManager, suppress
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any, TypeVar

from connectors.kafka.reach import reach
from connectors.process.leaving import aside
from pipeline.kafka.acceptance import (
    NOT_APPLICABLE,
    accepted_choice,
    accepted_events,
    accepted_residency,
    events_source,
    is_misplaced,
    require_time_of_the_log,
)
from pipeline.kafka.refusal import RecordRefused
from pipeline.kafka.rights import CHOICES, VERIFY
from pipeline.kafka.topics import describe, require_rights
from pipeline.verify import times
from pipeline.verify.choices import ChoicesCheck
from pipeline.verify.estimate import estimate
from pipeline.verify.figures import (
    BEFORE_THE_TOPIC,
    MARGIN,
    NAME,
    AgentsCommitted,
    Committed,
    FiguresCheck,
    decode_figure,
)
from pipeline.verify.findings import Findings
from pipeline.verify.fleet.beginning.checkpoint import CheckpointUnclear, saved_in
from pipeline.verify.fleet.beginning.undoing import (
    AT_ONCE,
    SET_ASIDE,
    TOO_OLD,
    Beginning,
    BeginningUnknown,
    Undoing,
)
from pipeline.verify.fleet.check import ShardCheck, Written
from pipeline.verify.fleet.topic_check import TopicCheck
from pipeline.verify.keys import SourceId
from pipeline.verify.money.check import check_money
from pipeline.verify.progress import Progress
from pipeline.verify.replica.expected import ReplicaRow
from pipeline.verify.replica.partition import PartitionCheck
from pipeline.verify.rollups.check import check_rollups
from pipeline.verify.rollups.statements import StoredRollups
from pipeline.verify.store import StoredTables
from pipeline.verify.topic_log import BeginningMoved, Extent, TopicLog, latest_values, opened_topic
from schemas.choices import ChoiceRecord
from schemas.events import EventsRecord
from schemas.residency import ResidencyRecord
from schemas.rows import SourceRow
from schemas.settings import Settings

KEPT_FOR = timedelta(days=6, hours=20)
"""Ten-second rows younger than that are certainly still there: tables drop them after seven days."""
RECOMPUTED_FOR = timedelta(days=5, hours=20)
"""Minutes and hours younger than that can be recomputed: all their ten-second rows still exist."""
SAMPLED = "estimates from a sample of the blocks (fleet.sample_rate)"
LOOK_AGAIN_SECONDS = 0.5
HIDES_FIGURES = "an open transaction, perhaps of a worker that was killed, hides records of figures partition"
HELD_BACK = "an open transaction, perhaps of a worker that was killed, hides records of residency partitions"

_Rows = TypeVar("_Rows")


async def check_log(
    settings: Settings,
    now: datetime,
    *,
    until: int | None,
    patience: float,
    progress: Progress | None = None,
    figures_since: datetime | None = None,
) -> Findings:
    """Recount the whole log and compare; `until`: ignore records at or after this offset of each partition.

    `patience`: seconds to wait for open transactions to end, and for the minutes and hours of each table to
    catch up. `figures_since`: see `Comparison`.
    Raises BrokerUnreachable, LoginRefused, KafkaUnavailable, TopicMissing, TopicHidden,
    RightMissing, CertificateUnreadable and StoreUnavailable.
    """
    # If both are down, report the broker: it comes first in the settings and at start-up.
    await reach(settings.kafka)
    require_rights(await describe(settings), settings.kafka, [VERIFY])
    tables = await aside(lambda: StoredTables(settings.clickhouse))
    progress = progress or Progress(None)
    comparison = Comparison(settings, tables, now, until, progress, figures_since=figures_since)
    findings = comparison.findings
    try:
        async with _events_log(settings) as events, _residency_log(settings) as residency:
            await estimate(progress, settings, tables, events, residency, until)
        await comparison.compare_topics(patience)
        progress.step("comparing minutes and hours")
        rollups = StoredRollups(tables)
        await aside(lambda: check_rollups(rollups, findings, oldest=now - RECOMPUTED_FOR, patience=patience))
        progress.step("comparing costs")
        await aside(
            lambda: check_money(tables, findings, oldest=now - RECOMPUTED_FOR, now=now, patience=patience)
        )
    finally:
        progress.end()
        tables.close()
    return findings


@dataclass
class Comparison:
    """Goes once through all topics and compares the rows that follow from them."""

    settings: Settings
    tables: StoredTables
    now: datetime
    until: int | None
    progress: Progress
    unreadable: str | None = None
    """Why some committed records of the residency topic cannot be read yet, if so."""
    figures_since: datetime | None = None
    """Time from which on the figures topic has all rows; None: MARGIN after its first record."""
    findings: Findings = field(default_factory=Findings)
    residency_topic: TopicCheck = field(default_factory=TopicCheck)

    async def compare_topics(self, patience: float) -> None:
        """Compare every topic with the rows that follow from it; `patience` as in `check_log`."""
        settings, progress = self.settings, self.progress
        async with _events_log(settings) as events:
            for partition in range(events.partitions):
                progress.partition("events", partition, events.partitions)
                await self._compare_partition(events, partition)
        # After the events topic, so that it has all that the replica agent had committed by then.
        async with _residency_log(settings) as residency:
            progress.step("waiting for open transactions to end")
            await self._wait_readable(residency, patience)
            for shard in range(residency.partitions):
                progress.partition("residency", shard, residency.partitions)
                await self._compare_shard(residency, shard)
        if self.until is None:  # otherwise both topics are cut off, at different points
            self.residency_topic.finish(self.findings, unreadable=self.unreadable)
        async with _choices_log(settings) as choices:
            for partition in range(choices.partitions):
                progress.partition(CHOICES, partition, choices.partitions)
                await self._compare_choices(choices, partition)
        if settings.kafka.figures and self.until is None:
            await self._compare_figures(patience)

    async def _looked(
        self, topic: TopicLog[Any], partition: int, rows: Callable[[], _Rows]
    ) -> tuple[Extent, _Rows, int, int]:
        """Return the extent of a partition, its rows in the tables, and two offsets: up to which to read, and
        up to which all must be in the tables (both exclusive)."""
        # Order matters: the rows read have all that was committed, and the log read next all they rest on.
        extent = await topic.extent(partition)
        found = await aside(rows)
        end = await topic.end(partition)
        if self.until is None:
            return extent, found, end, extent.committed
        return extent, found, min(end, self.until), min(extent.committed, self.until)

    async def _compare_partition(self, events: TopicLog[EventsRecord], partition: int) -> None:
        """Compare the sources of a partition of the events topic."""
        extent, found, end, committed = await self._looked(
            events, partition, lambda: _rows_by_source(self.tables, partition, events.partitions)
        )
        self.findings.removed += max(0, extent.begin - extent.committed) if extent.committed else 0
        self.findings.degraded += sum(map(_is_degraded, found.values()))
        check = PartitionCheck(
            self.settings.worker,
            found,
            self.findings,
            begin=extent.begin,
            committed=committed,
            oldest=self.now - KEPT_FOR,
        )
        async for offset, record in events.records(partition, extent.begin, end):
            if not isinstance(record, RecordRefused) and is_misplaced(record, partition, events.partitions):
                record = RecordRefused("wrong_partition", NOT_APPLICABLE, events_source(record))
            self._count(record)
            if isinstance(record, RecordRefused):
                check.set_aside(offset, record)
            else:
                times.believe_the_log(record, events.written_at, self.settings.worker)
                check.apply(offset, record)
        check.finish(end)
        if extent.begin == 0:
            for sums in check.residency_sums():
                self.residency_topic.expect(partition, committed, sums)

    async def _compare_choices(self, choices: TopicLog[ChoiceRecord], partition: int) -> None:
        """Compare the rows of a partition of routers' choices."""
        extent, found, end, committed = await self._looked(
            choices, partition, lambda: list(self.tables.choices_of_partition(partition, choices.partitions))
        )
        oldest = self.now - KEPT_FOR
        check = ChoicesCheck(found, self.findings, begin=extent.begin, committed=committed, oldest=oldest)
        async for offset, record in choices.records(partition, extent.begin, end):
            try:
                if not isinstance(record, RecordRefused):
                    require_time_of_the_log(record, choices.written_at)
                    check.apply(offset, record)
            except RecordRefused as refused:
                record = refused
            self._count(record)
        check.finish(end)

    async def _compare_figures(self, patience: float) -> None:
        """Compare the topic of figures with the tables."""
        settings, progress = self.settings, self.progress
        committed = await self._committed()
        async with opened_topic(settings, NAME, agent="replica", decode=decode_figure) as topic:
            progress.step("waiting for open transactions to end")
            for partition in await topic.held_back(patience):
                self.findings.late[NAME, f"{HIDES_FIGURES} {partition}"] += 1
            until = time.monotonic() + patience
            for partition in range(topic.partitions):
                progress.partition(NAME, partition, topic.partitions)
                await self._compare_figures_of(topic, partition, committed(partition), until)

    async def _compare_figures_of(
        self, topic: TopicLog[Any], partition: int, committed: AgentsCommitted, until: float
    ) -> None:
        """Compare a partition; until `until`, by the monotonic clock, wait for figures that rows lack."""
        begin, before = (await topic.extent(partition)).begin, await topic.end(partition)
        found = self.tables.figures_of_partition(partition, topic.partitions)
        rows = await aside(lambda: list(found))
        since = self.figures_since
        if since is None:
            written_at = await topic.first_written_at(partition, begin)
            if written_at is None:
                if rows:
                    self.findings.left_out[BEFORE_THE_TOPIC] += len(rows)
                return
            since = times.moment(written_at) + MARGIN
        check = FiguresCheck(
            rows, self.findings, since=since, oldest=self.now - KEPT_FOR, committed=committed, before=before
        )
        while True:
            end = await topic.end(partition)
            async for offset, row in topic.records(partition, begin, end):
                self._count(row)
                if not isinstance(row, RecordRefused):
                    check.apply(offset, row)
            begin = end
            # Rows are inserted before the transaction with their figures commits.
            if not check.lacks_some() or time.monotonic() >= until:
                break
            await asyncio.sleep(LOOK_AGAIN_SECONDS)
        check.finish()

    async def _committed(self) -> Callable[[int], AgentsCommitted]:
        """Return a function that says, for a partition of figures, how far its agents had committed."""
        settings = self.settings
        async with (
            _events_log(settings) as events,
            _residency_log(settings) as residency,
            _choices_log(settings) as choices,
        ):
            replica, fleet, chosen = [
                [await _committed_of(topic, partition) for partition in range(topic.partitions)]
                for topic in (events, residency, choices)
            ]
        # The partition of a choice is unknown here, so use what holds for all. It rests on a single record.
        of_choices = Committed(max(each.begin for each in chosen), min(each.end for each in chosen))
        return lambda partition: AgentsCommitted(replica[partition], fleet, of_choices)

    async def _wait_readable(self, residency: TopicLog[ResidencyRecord], patience: float) -> None:
        """Wait until all that the replica agent had committed when it was compared can be read."""
        if self.until is None and (behind := await residency.held_back(patience)):
            partitions = ", ".join(map(str, behind))
            self.unreadable = f"{HELD_BACK} {partitions}"

    async def _compare_shard(self, residency: TopicLog[ResidencyRecord], shard: int) -> None:
        """Compare the fleet's rows of a partition of the residency topic."""
        extent, found, end, committed = await self._looked(
            residency, shard, lambda: list(self.tables.rows_of_shard(shard))
        )
        beginning = None
        if extent.begin > 0:
            try:
                extent, beginning = await self._beginning(residency, shard, extent)
            except (BeginningUnknown, CheckpointUnclear) as unknown:
                self.residency_topic.begins_later(None)
                self.findings.left_out[str(unknown)] += len(found)
                return
            self.residency_topic.begins_later(beginning)
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
                Written(
                    committed,
                    oldest,
                    stood=committed == extent.committed,
                    begin=extent.begin,
                    shards=residency.partitions,
                ),
                forget_seconds=self.settings.worker.forget_seconds,
                beginning=beginning,
            )
        async for offset, record in residency.records(shard, extent.begin, end):
            self._count(record)
            if isinstance(record, RecordRefused):
                if check is not None:
                    check.set_aside(record)
            else:
                self.residency_topic.apply(record)
                if check is not None:
                    check.apply(offset, record)
        if check is not None:
            check.finish(end)

    async def _beginning(
        self, residency: TopicLog[ResidencyRecord], shard: int, extent: Extent
    ) -> tuple[Extent, Beginning]:
        """Return where a shard begins and what was held there. Raises BeginningUnknown, CheckpointUnclear."""
        if self.settings.fleet.sample_rate < 1:
            raise BeginningUnknown(SAMPLED)
        self.progress.step(f"going back to the beginning of residency, partition {shard + 1}")
        latest = await latest_values(self.settings, "checkpoints_fleet", shard, agent="fleet")
        while True:
            saved = await aside(lambda: saved_in(latest, shard, residency.partitions))
            end = await residency.end(shard) if saved is None else saved.next_offset
            if end < extent.begin:
                raise BeginningUnknown(TOO_OLD)
            undoing = Undoing(saved)
            written_at = None
            with suppress(BeginningMoved):  # which the extent shows below
                for behind in range(end, extent.begin, -AT_ONCE):
                    first = max(extent.begin, behind - AT_ONCE)
                    records: list[ResidencyRecord] = []
                    async for _, record in residency.records(shard, first, behind):
                        if not records:
                            written_at = residency.written_at
                        if isinstance(record, RecordRefused):
                            raise BeginningUnknown(SET_ASIDE)
                        records.append(record)
                    for record in reversed(records):
                        undoing.undo(record)
            now = await residency.extent(shard)
            if now.begin == extent.begin:
                ahead = self.settings.worker.max_clock_ahead_seconds
                return extent, undoing.beginning(written_at=written_at, ahead=ahead)
            extent = replace(extent, begin=now.begin)

    def _count(self, record: Any) -> None:
        self.progress.record()
        self.findings.records += 1
        if isinstance(record, RecordRefused):
            self.findings.set_aside[record.reason] += 1


def _events_log(settings: Settings) -> AbstractAsyncContextManager[TopicLog[EventsRecord]]:
    return opened_topic(settings, "events", agent="replica", decode=accepted_events)


def _residency_log(settings: Settings) -> AbstractAsyncContextManager[TopicLog[ResidencyRecord]]:
    return opened_topic(settings, "residency", agent="fleet", decode=accepted_residency)


def _choices_log(settings: Settings) -> AbstractAsyncContextManager[TopicLog[ChoiceRecord]]:
    return opened_topic(settings, CHOICES, agent=CHOICES, decode=accepted_choice)


async def _committed_of(topic: TopicLog[Any], partition: int) -> Committed:
    extent = await topic.extent(partition)
    written_at = await topic.first_written_at(partition, extent.begin) if extent.begin else None
    return Committed(extent.begin, extent.committed, times.moment(written_at or 0.0))


def _is_degraded(rows: Iterable[ReplicaRow]) -> bool:
    """Return whether the newest session of a source is still open and its trust degraded."""
    sessions = [row for row in rows if isinstance(row, SourceRow)]
    newest = max(sessions, key=lambda session: session.incarnation, default=None)
    return newest is not None and not newest.closed_reason and newest.trust == "degraded"


def _rows_by_source(
    tables: StoredTables, partition: int, partitions: int
) -> dict[SourceId, list[ReplicaRow]]:
    rows: dict[SourceId, list[ReplicaRow]] = {}
    for row in tables.rows_of_partition(partition, partitions):
        rows.setdefault((row.replica, row.dp_rank), []).append(row)
    return rows
