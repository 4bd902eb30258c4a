"""Reads a topic from its start, one partition after the other."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Generic, TypeVar

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.errors import KafkaError

from pipeline.decoding import RecordUndecodable
from pipeline.errors import KafkaUnavailable, TopicMissing
from pipeline.kafka_security import client_options
from pipeline.topics import describe, topic_name
from schemas.settings import Kafka, Settings

_WAIT_MS = 50
"""For records; short, because nothing tells when only the end of a transaction is left to come."""
_FETCH_RECORDS = 500
_SILENT_FETCHES = 600

Record = TypeVar("Record")
Decode = Callable[[bytes | None, Iterable[tuple[str, bytes]]], Record]


@dataclass(frozen=True)
class Extent:
    """What there is of a partition."""

    begin: int
    committed: int
    """Offset up to which the agent that reads the topic has committed; 0 if it never did."""


class TopicLog(Generic[Record]):
    """A topic of a running installation; made by `opened`."""

    def __init__(
        self, kafka: Kafka, topic: str, consumer: AIOKafkaConsumer, partitions: int, decode: Decode[Record]
    ) -> None:
        self.partitions = partitions
        self._kafka = kafka
        self._topic = topic
        self._consumer = consumer
        self._decode = decode

    async def extent(self, partition: int) -> Extent:
        """Return where the partition begins and how far the worker is."""
        place = TopicPartition(self._topic, partition)
        begin = await self._consumer.beginning_offsets([place])
        self._consumer.assign([place])
        return Extent(begin[place], await self._consumer.committed(place) or 0)

    async def end(self, partition: int) -> int:
        """Return the offset of the next record that will be written."""
        place = TopicPartition(self._topic, partition)
        ends: dict[TopicPartition, int] = await self._consumer.end_offsets([place])
        return ends[place]

    async def records(self, partition: int, begin: int, end: int) -> AsyncIterator[tuple[int, Record | None]]:
        """Give (offset, record) of the records before `end`; None for one that cannot be decoded.

        Raises KafkaUnavailable when they stop coming.
        """
        place = TopicPartition(self._topic, partition)
        self._consumer.assign([place])
        self._consumer.seek(place, begin)
        silent = 0
        while await self._consumer.position(place) < end:
            fetched = await self._consumer.getmany(place, timeout_ms=_WAIT_MS, max_records=_FETCH_RECORDS)
            silent = 0 if fetched else silent + 1
            if silent > _SILENT_FETCHES:
                raise KafkaUnavailable(self._kafka.bootstrap_servers, "records of the log did not come")
            for message in fetched.get(place, ()):
                if message.offset >= end:
                    return
                try:
                    yield message.offset, self._decode(message.value, message.headers)
                except RecordUndecodable:
                    yield message.offset, None


@asynccontextmanager
async def opened(
    settings: Settings, name: str, *, agent: str, decode: Decode[Record]
) -> AsyncIterator[TopicLog[Record]]:
    """Connect to the topic of a name in `topics.toml`, which an agent reads.

    Raises KafkaUnavailable and TopicMissing, and the former also for what happens inside.
    """
    kafka, topic = settings.kafka, topic_name(settings.kafka, name)
    partitions = {found.name: found.partitions for found in await describe(settings)}.get(topic)
    if not partitions:
        raise TopicMissing(topic)
    consumer = AIOKafkaConsumer(
        # Asks for this group's offsets only: partitions are assigned by hand, so it never joins.
        group_id=f"{kafka.group}.{agent}",
        isolation_level="read_committed",
        enable_auto_commit=False,
        auto_offset_reset="earliest",
        # A partition is waited for by the fetch of the one before.
        fetch_max_wait_ms=_WAIT_MS,
        **client_options(kafka),
    )
    try:
        try:
            await consumer.start()
            yield TopicLog(kafka, topic, consumer, partitions, decode)
        finally:
            await consumer.stop()
    except (KafkaError, OSError) as error:
        raise KafkaUnavailable(kafka.bootstrap_servers, str(error) or type(error).__name__) from error
