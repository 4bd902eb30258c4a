"""Topics that get more partitions while somebody reads or writes them."""

from __future__ import annotations

import asyncio
import time

from aiokafka.admin import AIOKafkaAdminClient, NewPartitions, NewTopic

from tests.support.patience import PATIENCE


async def make(address: str, topic: str, partitions: int) -> None:
    """Make a topic; return when the broker tells of it."""
    admin = AIOKafkaAdminClient(bootstrap_servers=address)
    await admin.start()
    try:
        await admin.create_topics([NewTopic(topic, partitions, 1)])
        await _told(admin, topic, partitions)
    finally:
        await admin.close()


async def grow(address: str, topic: str, partitions: int) -> None:
    """Give a topic so many partitions in all; return when the broker tells of them."""
    admin = AIOKafkaAdminClient(bootstrap_servers=address)
    await admin.start()
    try:
        await admin.create_partitions({topic: NewPartitions(partitions)})
        await _told(admin, topic, partitions)
    finally:
        await admin.close()


async def _told(admin: AIOKafkaAdminClient, topic: str, partitions: int) -> None:
    deadline = time.monotonic() + PATIENCE
    while len((await admin.describe_topics([topic]))[0]["partitions"]) < partitions:
        assert time.monotonic() < deadline
        await asyncio.sleep(0.05)
