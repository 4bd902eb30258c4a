"""What administrators of Kafka do to topics behind the backs of those who use them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import Any

from aiokafka import TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewPartitions, RecordsToDelete

from connectors.kafka.consumer import started_consumer
from connectors.kafka.topics import topic_name
from pipeline.kafka import topics
from schemas.settings import Settings


def made_again(settings: Settings, keys: Iterable[str]) -> None:
    """Delete topics of the catalogue, and make them as `kvlens topics apply` does."""

    async def change(admin: AIOKafkaAdminClient) -> None:
        names = [topic_name(settings.kafka, key) for key in keys]
        await admin.delete_topics(names)
        while {*names} & {*await admin.list_topics()}:  # noqa: ASYNC110 - the broker tells only when asked
            await asyncio.sleep(0.05)
        await topics.apply(settings)

    _do(settings, change)


def more_partitions(settings: Settings, key: str, partitions: int) -> None:
    """Give a topic so many partitions."""

    async def change(admin: AIOKafkaAdminClient) -> None:
        await admin.create_partitions({topic_name(settings.kafka, key): NewPartitions(partitions)})

    _do(settings, change)


def records_removed(settings: Settings, key: str) -> dict[int, int]:
    """Remove all records of a topic, as retention does; return where each partition begins then."""
    ends: dict[int, int] = {}

    async def change(admin: AIOKafkaAdminClient) -> None:
        name = topic_name(settings.kafka, key)
        [found] = [topic for topic in await topics.describe(settings) if topic.name == name]
        places = [TopicPartition(name, number) for number in range(found.partitions)]
        async with started_consumer(bootstrap_servers=settings.kafka.bootstrap_servers) as consumer:
            for place, end in (await consumer.end_offsets(places)).items():
                ends[place.partition] = end
        await admin.delete_records(
            {TopicPartition(name, number): RecordsToDelete(end) for number, end in ends.items() if end}
        )

    _do(settings, change)
    return ends


def _do(settings: Settings, change: Callable[[AIOKafkaAdminClient], Awaitable[Any]]) -> None:
    async def run() -> None:
        admin = AIOKafkaAdminClient(bootstrap_servers=settings.kafka.bootstrap_servers)
        await admin.start()
        try:
            await change(admin)
        finally:
            await admin.close()

    asyncio.run(run())
