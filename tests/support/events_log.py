"""The events topic as anybody may read it: from its first record to its last."""

from __future__ import annotations

import asyncio

import msgspec
from aiokafka import TopicPartition

from connectors.kafka.consumer import started_consumer
from connectors.kafka.topics import topic_name
from schemas.events import EventsRecord
from schemas.settings import Kafka


def read_events(kafka: Kafka) -> list[EventsRecord]:
    """Return all records that there are now, those of a partition in order."""
    return asyncio.run(_read(kafka))


async def _read(kafka: Kafka) -> list[EventsRecord]:
    topic = topic_name(kafka, "events")
    records: list[EventsRecord] = []
    async with started_consumer(bootstrap_servers=kafka.bootstrap_servers, fetch_max_wait_ms=50) as consumer:
        all_of_it = [TopicPartition(topic, number) for number in range(kafka.partitions)]
        consumer.assign(all_of_it)
        await consumer.seek_to_beginning()
        ends = await consumer.end_offsets(all_of_it)
        while any([await consumer.position(partition) < end for partition, end in ends.items()]):
            for messages in (await consumer.getmany(timeout_ms=200)).values():
                records += [msgspec.msgpack.decode(m.value, type=EventsRecord) for m in messages]
    return records
