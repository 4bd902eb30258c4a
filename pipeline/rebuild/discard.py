"""Discards the checkpoints of both agents, so that workers begin with the oldest event of the log.

The replica agent will announce every change of residency again. So the residency topic is emptied as well:
the fleet agent, and any other reader, sees each change once. Offsets go on, and with them the versions
of rows.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass
from datetime import datetime, timezone

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, RecordsToDelete
from aiokafka.errors import GroupCoordinatorNotAvailableError

from connectors.kafka.consumer import started_consumer
from connectors.kafka.errors import KAFKA_FAILURES, failure_reason
from connectors.kafka.security import client_options
from connectors.kafka.topics import topic_name
from pipeline.applying.offered import offered
from pipeline.errors import GroupInUse, KafkaUnavailable
from pipeline.kafka import topics
from pipeline.kafka.checkpoints import load
from pipeline.kafka.membership import group_name, may_join
from pipeline.kafka.rights import AGENTS, REBUILD
from pipeline.kafka.transactions import may_write, writers
from pipeline.worker.checkpoint.log import CheckpointLog
from pipeline.worker.checkpoint.record import Record
from schemas.checkpoints import META_KEY, TOPICS_KEY
from schemas.fleet_checkpoints import HEAD_KEY
from schemas.settings import Kafka, Settings

_COORDINATOR_SECONDS = 0.3
_COORDINATOR_TRIES = 10
"""A broker that never had a group first creates the topic of group offsets."""
_READ_MS = 5_000
_TOMBSTONES_AT_ONCE = 5_000


@dataclass(frozen=True)
class Extent:
    """The part of a topic that is read again: the first offset and the end of each partition."""

    topic: str
    begins: Mapping[int, int]
    ends: Mapping[int, int]


@dataclass(frozen=True)
class Discarded:
    """What workers start from."""

    events: Extent
    shards: int
    """Partitions of the residency topic."""
    checkpoints: int
    """Records that were discarded."""


class Rebuild:
    """A rebuild of an installation whose workers are stopped."""

    def __init__(
        self,
        settings: Settings,
        partitions: Mapping[str, int],
        consumer: AIOKafkaConsumer,
        admin: AIOKafkaAdminClient,
    ) -> None:
        """`partitions`: partition count of each topic."""
        self._settings = settings
        self._partitions = partitions
        self._consumer = consumer
        self._admin = admin
        self._events = topic_name(settings.kafka, "events")
        self._residency = topic_name(settings.kafka, "residency")

    async def refuse_members(self) -> None:
        """Raise GroupInUse if a worker runs."""
        for agent in AGENTS:
            group = group_name(self._settings.kafka, agent)
            members = await self._members(group)
            if members:
                raise GroupInUse(group, members)

    async def exact_from(self) -> datetime | None:
        """Return the time of the oldest event that every partition still has; None if none was removed.

        Partitions that have no event at all do not count, except where all have lost theirs: now.
        """
        events = await self._extent(self._events)
        times = []
        for number, begin in events.begins.items():
            if 0 < begin < events.ends[number]:
                partition = TopicPartition(self._events, number)
                self._consumer.assign([partition])
                self._consumer.seek(partition, begin)
                found = await self._consumer.getmany(partition, timeout_ms=_READ_MS, max_records=1)
                if not found.get(partition):
                    reason = f"no record of {self._events}/{number} within {_READ_MS // 1000} s"
                    raise KafkaUnavailable(self._settings.kafka.bootstrap_servers, reason)
                times += [one.written_at for one in offered(found[partition])]
        if not times and any(events.begins.values()):
            return datetime.now(timezone.utc)
        return datetime.fromtimestamp(max(times), timezone.utc) if times else None

    async def discard(self) -> Discarded:
        """Discard the checkpoints and the residency topic. It may be repeated. Raises CheckpointFailed."""
        events = await self._extent(self._events)
        # All possible writers are fenced first: from then on the end of the residency topic does not move.
        async with self._logs("replica", events) as replica:
            residency = await self._extent(self._residency)
            async with self._logs("fleet", residency) as fleet:
                # The first step is the one that a user may lack the right for.
                await self._empty(residency)
                count = await self._forget("replica", replica, events.begins)
                count += await self._forget("fleet", fleet, residency.ends)
        return Discarded(await self._extent(self._events), len(residency.begins), count)

    async def _empty(self, extent: Extent) -> None:
        """Remove all records of a topic."""
        ends = {
            TopicPartition(extent.topic, number): RecordsToDelete(end) for number, end in extent.ends.items()
        }
        try:
            await self._admin.delete_records(ends)
        except KAFKA_FAILURES as error:
            reason = f"{failure_reason(error)}, Delete on topic {extent.topic}"
            raise KafkaUnavailable(self._settings.kafka.bootstrap_servers, reason) from error

    async def _forget(self, agent: str, logs: Iterable[CheckpointLog], begins: Mapping[int, int]) -> int:
        """Write a tombstone for each record of an agent's checkpoints; return how many there were."""
        by_number = {log.partition: log for log in logs}
        checkpoints = topic_name(self._settings.kafka, f"checkpoints_{agent}")
        topic = next(iter(by_number.values())).topic
        count = 0
        found = load(self._settings.kafka, topic=topic, checkpoints=checkpoints, partitions=sorted(by_number))
        async with aclosing(found):
            async for number, loaded in found:
                # The keys with the format go first: a worker that meets the rest of a checkpoint refuses it.
                keys = sorted(loaded.latest, key=lambda key: key not in (META_KEY, HEAD_KEY))
                keys += [TOPICS_KEY] * bool(loaded.topics)
                for start in range(0, max(1, len(keys)), _TOMBSTONES_AT_ONCE):
                    some = keys[start : start + _TOMBSTONES_AT_ONCE]
                    records = [Record(checkpoints, number, key, None) for key in some]
                    await by_number[number].commit(begins[number], records)
                count += len(keys)
        return count

    @asynccontextmanager
    async def _logs(self, agent: str, extent: Extent) -> AsyncIterator[list[CheckpointLog]]:
        kafka = self._settings.kafka
        group = group_name(kafka, agent)
        logs = [
            CheckpointLog(kafka, group=group, topic=extent.topic, partition=number)
            for number in extent.begins
        ]
        try:
            await asyncio.gather(*(log.open() for log in logs))
            yield logs
        finally:
            await asyncio.gather(*(log.close() for log in logs))

    async def _extent(self, topic: str) -> Extent:
        partitions = [TopicPartition(topic, number) for number in range(self._partitions[topic])]
        begins = await self._consumer.beginning_offsets(partitions)
        ends = await self._consumer.end_offsets(partitions)
        return Extent(
            topic,
            {partition.partition: offset for partition, offset in begins.items()},
            {partition.partition: offset for partition, offset in ends.items()},
        )

    async def _members(self, group: str) -> int:
        for _ in range(_COORDINATOR_TRIES):
            try:
                (answer,) = await self._admin.describe_consumer_groups([group])
            except GroupCoordinatorNotAvailableError:
                await asyncio.sleep(_COORDINATOR_SECONDS)
            else:
                return sum(len(found[5]) for found in answer.groups)
        return 0


@asynccontextmanager
async def opened_rebuild(settings: Settings) -> AsyncIterator[Rebuild]:
    """Connect for a rebuild, after checking every right that it takes.

    Raises KafkaUnavailable, TopicMissing, TopicHidden, RightMissing, TopicMismatch, GroupRefused,
    TransactionsRefused, LoginRefused, CertificateUnreadable.
    """
    kafka = settings.kafka
    found = await topics.describe(settings)
    topics.require_rights(found, kafka, [REBUILD])
    topics.check(found)
    partitions = {topic.name: topic.partitions for topic in found}
    # Else a missing right to move the groups' offsets would only show once the residency topic is emptied.
    await may_join(kafka, [group_name(kafka, agent) for agent in AGENTS])
    await may_write(kafka, writers(kafka, AGENTS, {topic.key: topic for topic in found}))
    # It reads uncommitted records too: the topic's end is asked for when nobody can write any more.
    async with started_clients(kafka) as (admin, consumer):
        yield Rebuild(settings, partitions, consumer, admin)


@asynccontextmanager
async def started_clients(
    kafka: Kafka, isolation_level: str = "read_uncommitted"
) -> AsyncIterator[tuple[AIOKafkaAdminClient, AIOKafkaConsumer]]:
    """Yield an admin client and a consumer; raise KafkaUnavailable if the brokers go away."""
    options = client_options(kafka)
    admin = AIOKafkaAdminClient(**options)
    try:
        await admin.start()
        reading = started_consumer(enable_auto_commit=False, isolation_level=isolation_level, **options)
        async with reading as consumer:
            yield admin, consumer
    except KAFKA_FAILURES as error:
        raise KafkaUnavailable(kafka.bootstrap_servers, failure_reason(error)) from error
    finally:
        await admin.close()
