"""Detects that the events topic got more partitions while a connector writes to it.

A replica stays in its partition until the connector is started again, so that its records keep their order;
workers refuse the topic meanwhile.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from typing import Protocol

from aiokafka.client import AIOKafkaClient

from connectors.kafka.errors import KAFKA_FAILURES
from connectors.kafka.topic_metadata import topic_metadata

LOOK_SECONDS = 30.0
ANSWER_SECONDS = 20.0


class GrowthTelemetry(Protocol):
    """Where it reports what happens."""

    def log_grew(self, topic: str, known: int, now: int, message: str) -> None: ...


class Growth:
    """Checks now and then how many partitions a topic has."""

    def __init__(
        self, topic: str, client: Callable[[], AIOKafkaClient | None], telemetry: GrowthTelemetry
    ) -> None:
        """`client` returns None while there is none."""
        self.unknown = 0
        """Partitions added since the start, as of the last check."""
        self._topic = topic
        self._client = client
        self._telemetry = telemetry

    async def watch(self, known: int) -> None:
        """Check for ever whether there are more than `known` ones."""
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            if (client := self._client()) is not None:
                # The publisher reports why Kafka does not answer.
                with contextlib.suppress(*KAFKA_FAILURES):
                    self._look(known, await asyncio.wait_for(self._partitions(client), ANSWER_SECONDS))

    async def _partitions(self, client: AIOKafkaClient) -> int:
        return (await topic_metadata(client, [self._topic]))[self._topic].partitions

    def _look(self, known: int, now: int) -> None:
        self.unknown = max(0, now - known)
        if self.unknown:
            message = (
                f"goes on with the {known} that it knows; workers refuse the topic, and "
                "`kvlens topics copy` takes the log to another one (docs/maintenance.md, more partitions)"
            )
            self._telemetry.log_grew(self._topic, known, now, message)
