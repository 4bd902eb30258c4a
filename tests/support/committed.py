"""How far a consumer group is, asked with one consumer: each new one costs as much as many questions."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from aiokafka import TopicPartition

from connectors.kafka.consumer import started_consumer
from tests.support.patience import PATIENCE

LOOK_SECONDS = 0.2


def wait_committed(
    bootstrap_servers: str,
    group: str,
    topic: str,
    partitions: int,
    records: int | None = None,
    *,
    seconds: float = PATIENCE,
    tell: Callable[[], str] = str,
) -> None:
    """Return when commits of a group cover so many records of a topic, or all that there are now.

    A failure shows what `tell` returns then.
    """
    places = [TopicPartition(topic, number) for number in range(partitions)]

    async def wait() -> None:
        deadline = time.monotonic() + seconds
        async with started_consumer(
            bootstrap_servers=bootstrap_servers, group_id=group, enable_auto_commit=False
        ) as consumer:
            expected = sum((await consumer.end_offsets(places)).values()) if records is None else records
            while (found := sum([await consumer.committed(place) or 0 for place in places])) < expected:
                assert time.monotonic() < deadline, f"{found} of {expected} after {seconds} s\n{tell()}"
                await asyncio.sleep(LOOK_SECONDS)

    asyncio.run(wait())
