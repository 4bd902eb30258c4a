"""Reads a stretch of a partition's log, for as long as it moves."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from typing import Any

from aiokafka import AIOKafkaConsumer, TopicPartition

WAIT_MS = 500
"""For records, before looking how far the log was read."""
SILENT_SECONDS = 20.0
"""After so long without a record a partition is given up."""


class Patience:
    """Ends when a log has stood for SILENT_SECONDS: its broker is gone, or it lost what was to be read."""

    def __init__(self) -> None:
        self.moved()

    def moved(self) -> None:
        """Note that there was something to read."""
        self._since = time.monotonic()

    def stands(self, place: TopicPartition, offset: int) -> None:
        """Note that there was nothing from `offset` on. Raises asyncio.TimeoutError after too long."""
        if time.monotonic() - self._since > SILENT_SECONDS:
            raise asyncio.TimeoutError(
                f"partition {place.partition} of {place.topic} does not get past offset {offset}"
            )


async def stretch(
    consumer: AIOKafkaConsumer, place: TopicPartition, begin: int, end: int
) -> AsyncIterator[list[Any]]:
    """Yield the records from `begin` to before `end`, as they are fetched.

    The consumer's assignment is replaced, unless there is nothing to read. Raises asyncio.TimeoutError where
    the log stands.
    """
    if begin >= end:
        return
    consumer.assign([place])
    consumer.seek(place, begin)
    reached, patience = begin, Patience()
    # The position passes the markers of transactions, which take offsets but are never delivered.
    while reached < end:
        fetched = await consumer.getmany(place, timeout_ms=WAIT_MS)
        if records := [record for record in fetched.get(place, ()) if record.offset < end]:
            yield records
        before, reached = reached, await consumer.position(place)
        if reached > before:
            patience.moved()
        else:
            patience.stands(place, reached)
