"""aiokafka's consumer as kvlens uses it: stopped in bounded time."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from typing import Any

from aiokafka import AIOKafkaConsumer

from connectors.kafka.errors import KAFKA_FAILURES
from connectors.process.stopping import ended_within

STOP_SECONDS = 2.0


@contextlib.asynccontextmanager
async def started_consumer(*topics: str, **options: Any) -> AsyncIterator[AIOKafkaConsumer]:
    """Yield a consumer that is connected to a broker; `options` are aiokafka's. Raises KAFKA_FAILURES."""
    consumer = AIOKafkaConsumer(*topics, **options)
    try:
        await consumer.start()
        yield consumer
    finally:
        await stop_consumer(consumer)


async def stop_consumer(consumer: AIOKafkaConsumer, seconds: float = STOP_SECONDS) -> None:
    """Stop a consumer, and return soon after so many seconds whatever happens.

    aiokafka's `stop` cancels its fetcher once and waits for it. A fetcher that is just leaving one assignment
    for the next one swallows that cancellation, goes on, and `stop` waits for ever. Cancelling `stop` then
    cancels the fetcher a second time, and `stop` does the rest of its work.
    """
    with contextlib.suppress(*KAFKA_FAILURES):
        await ended_within(seconds, consumer.stop())
