"""Reads the Kafka topic that LMCache's servers write to: all its partitions, also those that it gets later.

Offsets are committed only when Kafka has acknowledged every record that follows from what is before them. So
a successor reads a part again. Nothing counts twice: positions say what of each server is in the log.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Protocol

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.client import AIOKafkaClient
from aiokafka.errors import UnknownTopicOrPartitionError
from aiokafka.structs import ConsumerRecord

from connectors.kafka.consumer import started_consumer
from connectors.kafka.errors import KAFKA_FAILURES, failure_reason
from connectors.kafka.private import client_of
from connectors.kafka.reach import reach
from connectors.kafka.security import client_options
from connectors.kafka.topic_metadata import topic_metadata
from connectors.lmcache.backlog import Backlog
from connectors.lmcache.servers import Servers
from connectors.process.backoff import Backoff
from connectors.process.errors import OperatorError
from connectors.process.stopping import ended
from connectors.publish.publisher import Publisher
from schemas.settings import KafkaLogin

COMMIT_SECONDS = 1.0
"""Offsets are committed this often, if Kafka keeps up."""
ANSWER_SECONDS = 20.0
"""How long the broker may take to answer."""
LOOK_SECONDS = 10.0
"""How often to look up how many partitions there are, and how much of them is unread."""
MISSES = 3
"""Looks in a row that find fewer partitions than are read, until the topic counts as another of that name."""
POLL_MS = 200
MOST_RECORDS = 500
"""Taken at a time."""
FETCH_BYTES = 4 << 20
RETRY = Backoff(first=0.5, longest=10.0)

_LOGIN_SETTING = re.compile(r"\bkafka(?=\.(?:bootstrap|security|sasl|ssl)_)")

Offsets = dict[TopicPartition, int]


class TopicTelemetry(Protocol):
    """Where the reading of the topic is reported."""

    def reports_unreachable(self, topic: str, reason: str) -> None: ...
    def reports_read(self, topic: str, records: int) -> None: ...
    def report_partitions_added(self, topic: str, before: int, now: int) -> None: ...


class TopicReader:
    """Reads all partitions of the topic, from the group's offsets or else from their beginning."""

    def __init__(
        self,
        login: KafkaLogin,
        *,
        section: str = "kafka",
        topic: str,
        group: str,
        servers: Servers,
        publisher: Publisher,
        telemetry: TopicTelemetry,
    ) -> None:
        """`section` of the settings has the login."""
        self._login = login
        self._section = section
        self._topic = topic
        self._group = group
        self._servers = servers
        self._publisher = publisher
        self._telemetry = telemetry
        self._failures = 0
        self.unread = 0
        """Records of the topic that were not taken at the last look."""
        self.task: asyncio.Task[None] | None = None
        """Runs from the start to the stop."""

    def start(self) -> None:
        """Begin to read; what is not there yet is waited for."""
        self._servers.read_to = 0.0
        self.task = asyncio.create_task(self._run(), name="lmcache topic")

    async def stop(self) -> None:
        await ended(self.task)

    async def _run(self) -> None:
        while True:
            try:
                await reach(self._login)
                while True:
                    await self._read()
            except OperatorError as error:
                reason = str(error)
            except KAFKA_FAILURES as error:
                reason = failure_reason(error)
            self._servers.reached, self._servers.read_to = False, 0.0
            reason = _LOGIN_SETTING.sub(self._section, reason)
            self._telemetry.reports_unreachable(self._topic, reason)
            self._failures += 1
            await asyncio.sleep(RETRY.pause(self._failures))

    async def _read(self) -> None:
        """Read until there are more partitions.

        Raises KAFKA_FAILURES, TopicHidden, RightMissing, CertificateUnreadable.
        """
        options = client_options(self._login)
        topic_partitions = await self._topic_partitions(options)
        async with started_consumer(
            **options,
            group_id=self._group,
            enable_auto_commit=False,
            auto_offset_reset="earliest",
            max_partition_fetch_bytes=FETCH_BYTES,
        ) as consumer:
            # No other connector reads it, so there is nothing to share out: no group is joined.
            consumer.assign(topic_partitions)
            commit = _Commit(consumer, self._publisher)
            ends = await asyncio.wait_for(consumer.end_offsets(topic_partitions), ANSWER_SECONDS)
            backlog = Backlog({at.partition: end for at, end in ends.items()})
            look = _Look(consumer, topic_partitions)
            while True:
                found: dict[TopicPartition, list[ConsumerRecord[Any, Any]]]
                found = await consumer.getmany(timeout_ms=POLL_MS, max_records=MOST_RECORDS)
                self._servers.reached, self._failures = True, 0
                for at, records in found.items():
                    now = time.time()
                    reports = [
                        (record.value or b"", backlog.heard_at(at.partition, record.timestamp / 1000, now))
                        for record in records
                    ]
                    await self._servers.take(reports, now)
                    commit.taken[at] = records[-1].offset + 1
                    self._telemetry.reports_read(self._topic, len(records))
                for partition in backlog.partitions:
                    asking = consumer.position(TopicPartition(self._topic, partition))
                    backlog.stands_at(partition, await asyncio.wait_for(asking, ANSWER_SECONDS))
                self._servers.read_to = backlog.read_to
                await commit.look(time.monotonic(), self._servers.flush)
                if look.due(time.monotonic()):
                    if (more := await look.partitions()) > len(topic_partitions):
                        self._telemetry.report_partitions_added(self._topic, len(topic_partitions), more)
                        return
                    self.unread = await look.unread()

    async def _topic_partitions(self, options: dict[str, Any]) -> list[TopicPartition]:
        """Return the partitions of the topic. Raises KAFKA_FAILURES, TopicHidden, RightMissing."""
        client = AIOKafkaClient(**options)
        try:
            await client.bootstrap()
            found = (await topic_metadata(client, [self._topic]))[self._topic]
        finally:
            await client.close()
        if not found.hidden and not found.partitions:
            raise UnknownTopicOrPartitionError(f"{self._topic} does not exist")
        found.require("Read")
        return [TopicPartition(self._topic, partition) for partition in range(found.partitions)]


class _Look:
    """Looks up from time to time what the topic has."""

    def __init__(self, consumer: AIOKafkaConsumer, topic_partitions: Sequence[TopicPartition]) -> None:
        """`topic_partitions` are the partitions that the consumer reads."""
        self._consumer = consumer
        self._topic_partitions = topic_partitions
        self._at = time.monotonic()
        self._misses = 0

    def due(self, now: float) -> bool:
        if now - self._at < LOOK_SECONDS:
            return False
        self._at = now
        return True

    async def partitions(self) -> int:
        """Return how many there are. Raises KAFKA_FAILURES, also when partitions have gone."""
        topic = self._topic_partitions[0].topic
        asking = topic_metadata(client_of(self._consumer), [topic])
        found = (await asyncio.wait_for(asking, ANSWER_SECONDS))[topic]
        self._misses = 0 if found.partitions >= len(self._topic_partitions) else self._misses + 1
        if self._misses >= MISSES and not found.hidden:
            raise UnknownTopicOrPartitionError(
                f"{topic} has {found.partitions} partitions instead of {len(self._topic_partitions)}"
            )
        return found.partitions

    async def unread(self) -> int:
        """Return how many records were not taken yet. Raises KAFKA_FAILURES."""
        ends = await asyncio.wait_for(self._consumer.end_offsets(self._topic_partitions), ANSWER_SECONDS)
        count = 0
        for at, end in ends.items():
            asking = self._consumer.position(at)
            count += max(0, end - await asyncio.wait_for(asking, ANSWER_SECONDS))
        return count


class _Commit:
    """Commits the offsets of what was taken, once every record that follows from it is in the log."""

    def __init__(self, consumer: AIOKafkaConsumer, publisher: Publisher) -> None:
        self._consumer = consumer
        self._publisher = publisher
        self.taken: Offsets = {}
        """Next offsets."""
        self._committed: Offsets = {}
        self._waiting: tuple[Offsets, list[int]] | None = None
        self._began_at = 0.0

    async def look(self, now: float, flush: Callable[[], None]) -> None:
        """Commit, or begin to wait for the acknowledgements that it needs. Raises KAFKA_FAILURES."""
        if self._waiting is None:
            if self.taken != self._committed and now - self._began_at >= COMMIT_SECONDS:
                flush()
                self._waiting, self._began_at = ({**self.taken}, self._publisher.mark()), now
            return
        offsets, mark = self._waiting
        if self._publisher.passed(mark):
            committing: Awaitable[None] = self._consumer.commit(offsets)
            await asyncio.wait_for(committing, ANSWER_SECONDS)
            self._committed, self._waiting = offsets, None
