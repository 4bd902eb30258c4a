"""Reads a topic from its start, one partition after the other."""

from __future__ import annotations

import math
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Generic, TypeVar

from aiokafka import AIOKafkaConsumer, TopicPartition

from connectors.kafka.consumer import stop_consumer
from connectors.kafka.errors import KAFKA_FAILURES, failure_reason
from connectors.kafka.security import client_options
from connectors.kafka.topics import topic_name
from pipeline.errors import KafkaUnavailable, PipelineError
from pipeline.kafka.membership import group_name
from pipeline.kafka.refusal import RecordRefused
from pipeline.kafka.topics import describe
from pipeline.verify.open_transactions import held_back
from schemas.settings import Kafka, Settings

_WAIT_MS = 50
"""To wait for records; short, because nothing shows that only a transaction's end marker is left."""
_FETCH_RECORDS = 500
_SILENT_FETCHES = 600

Record = TypeVar("Record")
Decode = Callable[[bytes | None, Iterable[tuple[str, bytes]], bytes | None], Record]
"""Turns (value, headers, key) into a record that may be applied. Raises RecordRefused."""


@dataclass(frozen=True)
class Extent:
    """Where a partition begins and how far it was processed."""

    begin: int
    committed: int
    """Offset up to which the agent that reads the topic has committed; 0 if it never did."""


class BeginningMoved(PipelineError):
    """Retention removed records of a partition before they were read."""

    topic: str
    partition: int
    line = (
        "retention removed records of {topic}, partition {partition}, just before they were read: try again"
    )


class TopicLog(Generic[Record]):
    """A topic of a running installation; made by `opened_topic`."""

    def __init__(
        self,
        kafka: Kafka,
        topic: str,
        consumer: AIOKafkaConsumer,
        uncommitted: AIOKafkaConsumer,
        partitions: int,
        decode: Decode[Record],
    ) -> None:
        """`consumer` reads committed records; `uncommitted` shows how far open transactions wrote."""
        self.partitions = partitions
        self.record_bytes = 0
        """Length of the newest record that `records` gave."""
        self.written_at = 0.0
        """Seconds since the epoch: the log's time of that record."""
        self._uncommitted = uncommitted
        self._kafka = kafka
        self._topic = topic
        self._consumer = consumer
        self._decode = decode

    async def extent(self, partition: int) -> Extent:
        """Return where the partition begins and how far the agent has committed."""
        topic_partition = TopicPartition(self._topic, partition)
        begin = await self._consumer.beginning_offsets([topic_partition])
        self._consumer.assign([topic_partition])
        return Extent(begin[topic_partition], await self._consumer.committed(topic_partition) or 0)

    async def first_written_at(self, partition: int, begin: int) -> float | None:
        """Return the log's time of the first record from an offset on; None if none can be read."""
        async for _ in self.records(partition, begin, await self.end(partition)):
            return self.written_at
        return None

    async def end(self, partition: int) -> int:
        """Return the offset up to which committed records can be read."""
        return (await self._ends(self._consumer, [partition]))[partition]

    async def lengths(self, until: int | None) -> dict[int, int]:
        """Return about how many records each partition has before `until`; transaction markers count too."""
        every = range(self.partitions)
        begins = await self._consumer.beginning_offsets([TopicPartition(self._topic, one) for one in every])
        ends = await self._ends(self._consumer, every)
        bound = math.inf if until is None else until
        return {one.partition: max(int(min(ends[one.partition], bound)) - begins[one], 0) for one in begins}

    async def held_back(self, patience: float) -> list[int]:
        """Return the partitions in which an open transaction still hides records after `patience` seconds."""
        every = range(self.partitions)
        return await held_back(
            lambda: self._ends(self._uncommitted, every),
            lambda: self._ends(self._consumer, every),
            patience=patience,
        )

    async def _ends(self, consumer: AIOKafkaConsumer, partitions: Iterable[int]) -> dict[int, int]:
        """Return the offset after the newest record that a consumer may read, of each partition."""
        asked = [TopicPartition(self._topic, partition) for partition in partitions]
        ends: dict[TopicPartition, int] = await consumer.end_offsets(asked)
        return {topic_partition.partition: end for topic_partition, end in ends.items()}

    async def records(
        self, partition: int, begin: int, end: int
    ) -> AsyncIterator[tuple[int, Record | RecordRefused]]:
        """Yield (offset, record) of the records before `end`; those that cannot be applied as RecordRefused.

        Raises KafkaUnavailable when records stop coming, and BeginningMoved.
        """
        topic_partition = TopicPartition(self._topic, partition)
        self._consumer.assign([topic_partition])
        self._consumer.seek(topic_partition, begin)
        silent, next_offset = 0, begin
        while await self._consumer.position(topic_partition) < end:
            fetched = await self._consumer.getmany(
                topic_partition, timeout_ms=_WAIT_MS, max_records=_FETCH_RECORDS
            )
            silent = 0 if fetched else silent + 1
            if silent > _SILENT_FETCHES:
                raise KafkaUnavailable(self._kafka.bootstrap_servers, "records of the log did not come")
            messages = fetched.get(topic_partition, [])
            if messages and messages[0].offset > next_offset:
                await self._require_from(topic_partition, next_offset)
            for message in messages:
                if message.offset >= end:
                    return
                next_offset = message.offset + 1
                self.record_bytes = len(message.value or b"")
                self.written_at = message.timestamp / 1000
                try:
                    yield message.offset, self._decode(message.value, message.headers, message.key)
                except RecordRefused as refused:
                    yield message.offset, refused
        if next_offset < end:
            await self._require_from(topic_partition, next_offset)

    async def _require_from(self, topic_partition: TopicPartition, begin: int) -> None:
        """Raise BeginningMoved unless the log still begins at `begin` or before.

        The consumer goes on at the log's beginning by itself, and markers leave gaps in offsets, too.
        """
        beginnings = await self._consumer.beginning_offsets([topic_partition])
        if beginnings[topic_partition] > begin:
            raise BeginningMoved(self._topic, topic_partition.partition)


@asynccontextmanager
async def opened_topic(
    settings: Settings, name: str, *, agent: str, decode: Decode[Record]
) -> AsyncIterator[TopicLog[Record]]:
    """Connect to a topic, by its name in `topics.toml`, that `agent` reads.

    Raises CertificateUnreadable, TopicMissing, TopicHidden, and KafkaUnavailable, also for Kafka's errors
    while the context is open.
    """
    kafka, topic = settings.kafka, topic_name(settings.kafka, name)
    [found] = [found for found in await describe(settings) if found.name == topic]
    found.require()
    consumer = AIOKafkaConsumer(
        # Only to read this group's offsets: partitions are assigned by hand, so it never joins.
        group_id=group_name(kafka, agent),
        isolation_level="read_committed",
        enable_auto_commit=False,
        auto_offset_reset="earliest",
        # The first fetch of a partition waits for the fetch of the one before to return.
        fetch_max_wait_ms=_WAIT_MS,
        **client_options(kafka),
    )
    uncommitted = AIOKafkaConsumer(
        isolation_level="read_uncommitted", enable_auto_commit=False, **client_options(kafka)
    )
    try:
        try:
            await consumer.start()
            await uncommitted.start()
            yield TopicLog(kafka, topic, consumer, uncommitted, found.partitions, decode)
        finally:
            await stop_consumer(consumer)
            await stop_consumer(uncommitted)
    except KAFKA_FAILURES as error:
        raise KafkaUnavailable(kafka.bootstrap_servers, failure_reason(error)) from error


async def latest_values(settings: Settings, name: str, partition: int, *, agent: str) -> dict[bytes, bytes]:
    """Return the last committed value of each key in a compacted topic, as it ends now.

    Raises what `opened_topic` does.
    """
    latest: dict[bytes, bytes] = {}
    entries = opened_topic(settings, name, agent=agent, decode=lambda value, _, key: (key or b"", value))
    async with entries as topic:
        begin = (await topic.extent(partition)).begin
        async for _, entry in topic.records(partition, begin, await topic.end(partition)):
            assert not isinstance(entry, RecordRefused)
            key, value = entry
            if value is None:
                latest.pop(key, None)
            else:
                latest[key] = value
    return latest
