"""Reads the events topic from its start, one partition after the other."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.errors import KafkaError

from pipeline.decoding import RecordUndecodable, decode_events
from pipeline.errors import KafkaUnavailable, TopicMissing
from pipeline.kafka_security import client_options
from pipeline.topics import describe, topic_name
from schemas.events import EventsRecord
from schemas.settings import Kafka, Settings

_WAIT_MS = 500
_FETCH_RECORDS = 500
_SILENT_FETCHES = 60


@dataclass(frozen=True)
class Extent:
    """What there is of a partition."""

    begin: int
    committed: int
    """Offset up to which the replica agent has committed; 0 if it never did."""


class EventLog:
    """The events topic of a running installation; made by `opened`."""

    def __init__(self, kafka: Kafka, consumer: AIOKafkaConsumer, partitions: int) -> None:
        self.partitions = partitions
        self._kafka = kafka
        self._topic = topic_name(kafka, "events")
        self._consumer = consumer

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

    async def records(
        self, partition: int, begin: int, end: int
    ) -> AsyncIterator[tuple[int, EventsRecord | None]]:
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
                    yield message.offset, decode_events(message.value, message.headers)
                except RecordUndecodable:
                    yield message.offset, None


@asynccontextmanager
async def opened(settings: Settings) -> AsyncIterator[EventLog]:
    """Connect; raises KafkaUnavailable and TopicMissing, and the former also for what happens inside."""
    kafka, topic = settings.kafka, topic_name(settings.kafka, "events")
    partitions = {found.name: found.partitions for found in await describe(settings)}.get(topic)
    if not partitions:
        raise TopicMissing(topic)
    consumer = AIOKafkaConsumer(
        # Asks for this group's offsets only: partitions are assigned by hand, so it never joins.
        group_id=f"{kafka.group}.replica",
        enable_auto_commit=False,
        auto_offset_reset="earliest",
        **client_options(kafka),
    )
    try:
        try:
            await consumer.start()
            yield EventLog(kafka, consumer, partitions)
        finally:
            await consumer.stop()
    except (KafkaError, OSError) as error:
        raise KafkaUnavailable(kafka.bootstrap_servers, str(error) or type(error).__name__) from error
