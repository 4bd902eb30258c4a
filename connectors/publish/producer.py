"""aiokafka's producer as the connector uses it: made, asked for partitions, stopped in bounded time."""

from __future__ import annotations

import asyncio
import contextlib
import time
from typing import Any

from aiokafka import AIOKafkaProducer
from aiokafka.client import AIOKafkaClient

from connectors.kafka.errors import KAFKA_FAILURES
from connectors.kafka.topic_metadata import topic_metadata
from connectors.process.stopping import ended_within
from schemas.settings import Settings

MAX_REQUEST_BYTES = 8 << 20
"""The events topic's max.message.bytes."""
BATCH_BYTES = 512 << 10
"""Records of a partition that wait together are sent together up to this size."""
STOP_SECONDS = 2.0
RETRY_SECONDS = 0.25
"""First pause between tries; also the least time that a try is given, however near the deadline."""
NEW_TOPIC_SECONDS = 2.0
"""How long a topic that was just made may be unknown to the broker that is asked."""


async def connected(settings: Settings, options: dict[str, Any], deadline: float) -> AIOKafkaProducer:
    """Return a producer that has reached a broker before `deadline`, by the clock of the event loop.

    `options` are those of `client_options`. Raises KAFKA_FAILURES.
    """
    kafka = settings.kafka
    producer = AIOKafkaProducer(
        **options,
        acks="all",
        enable_idempotence=True,
        compression_type=None if kafka.compression == "none" else kafka.compression,
        max_batch_size=BATCH_BYTES,
        max_request_size=MAX_REQUEST_BYTES,
        request_timeout_ms=int(settings.connector.send_timeout_seconds * 1000),
    )
    try:
        left = deadline - asyncio.get_running_loop().time()
        await asyncio.wait_for(producer.start(), max(left, RETRY_SECONDS))
    except BaseException:
        await stopped(producer)
        raise
    return producer


async def partitions_of(client: AIOKafkaClient, topic: str) -> int:
    """Return how many partitions a topic has. The connector needs the rights to read and write it.

    Raises TopicMissing, TopicHidden, RightMissing and KAFKA_FAILURES.
    """
    deadline = time.monotonic() + NEW_TOPIC_SECONDS
    while True:
        found = (await topic_metadata(client, [topic]))[topic]
        if found.partitions or time.monotonic() > deadline:
            found.require("Read", "Write")
            return found.partitions
        await asyncio.sleep(0.1)


async def looked_up(options: dict[str, Any], topic: str) -> int:
    """Do the same with a client of its own: a producer without rights tries for long and does not say why."""
    client = AIOKafkaClient(**options)
    try:
        await client.bootstrap()
        return await partitions_of(client, topic)
    finally:
        await client.close()


async def stopped(producer: AIOKafkaProducer, seconds: float = STOP_SECONDS) -> None:
    """Stop a producer without waiting for records that it may never get acknowledged."""
    with contextlib.suppress(*KAFKA_FAILURES):
        await ended_within(seconds, producer.stop())


async def retired(producer: AIOKafkaProducer) -> None:
    """Stop a producer once all that is in flight in it was acknowledged or failed, however long that takes.

    If its stop is cut short, its connections and tasks stay for ever.
    """
    with contextlib.suppress(*KAFKA_FAILURES):
        await producer.stop()
