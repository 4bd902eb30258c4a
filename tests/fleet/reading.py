"""A connector that reads pods, and what it writes to the log."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable

import msgspec
from aiokafka import AIOKafkaConsumer

from connectors.connector import run
from connectors.kafka.topics import topic_name
from connectors.process.stopping import Stop
from pipeline.kafka import topics
from schemas.events import Batch, Closed, EventsRecord, Opened
from schemas.settings import Settings

SECONDS = 60.0


class Log:
    """The events topic as it grows."""

    def __init__(self, consumer: AIOKafkaConsumer) -> None:
        self._consumer = consumer
        self.records: list[EventsRecord] = []

    async def until(self, reached: Callable[[], bool], seconds: float = SECONDS) -> None:
        deadline = time.monotonic() + seconds
        while not reached():
            assert time.monotonic() < deadline, "not in the log in time"
            await self.read()

    async def read(self) -> None:
        for found in (await self._consumer.getmany(timeout_ms=100)).values():
            self.records += [msgspec.msgpack.decode(each.value, type=EventsRecord) for each in found]

    def numbers(self, replica: str) -> list[int]:
        """The sequence numbers of a replica's batches, in the order of the log."""
        return [batch.seq for batch in self._batches(replica) if batch.seq is not None]

    def notices(self, replica: str) -> list[str]:
        """What the log says of a replica's lives: opened, or the reason of an end."""
        events = [event for batch in self._batches(replica) if batch.seq is None for event in batch.events]
        return [
            "opened" if isinstance(event, Opened) else event.reason
            for event in events
            if isinstance(event, (Opened, Closed))
        ]

    def incarnations(self, replica: str) -> int:
        return len({record.incarnation for record in self.records if record.replica == replica})

    def _batches(self, replica: str) -> list[Batch]:
        return [batch for record in self.records if record.replica == replica for batch in record.batches]


@contextlib.asynccontextmanager
async def connector(settings: Settings) -> AsyncIterator[Log]:
    """Run a connector; give the log that it writes."""
    await topics.apply(settings)
    consumer = AIOKafkaConsumer(
        topic_name(settings.kafka, "events"),
        bootstrap_servers=settings.kafka.bootstrap_servers,
        auto_offset_reset="earliest",
        fetch_max_wait_ms=50,
    )
    stop = Stop()
    async with consumer:
        task = asyncio.create_task(run(settings, stop=stop))
        try:
            yield Log(consumer)
        finally:
            stop.set()
            await asyncio.wait_for(task, 30)
