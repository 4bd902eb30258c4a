"""The topic of choices: Kafka acknowledges what is appended, or the caller learns that it did not."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Sequence

import structlog
from aiokafka import AIOKafkaProducer

from connectors.kafka.encoding import Encoding
from connectors.kafka.errors import KAFKA_FAILURES, failure_reason
from connectors.kafka.schema_registry import prefixes
from connectors.kafka.security import client_options
from connectors.kafka.topics import compression_of, partition_of_key, topic_name
from connectors.process.errors import DataError
from connectors.process.stopping import ended_within
from connectors.process.waiting import Waiting
from pipeline.errors import KafkaUnavailable
from pipeline.kafka.rights import RECORDING
from pipeline.kafka.topics import describe, require_rights
from schemas.choices import ChoiceRecord
from schemas.settings import Settings

ANSWER_SECONDS = 5.0
"""Longest time for the records of one request; the router waits for them."""
STOP_SECONDS = 2.0

_log = structlog.get_logger(__name__)


class Unacknowledged(DataError):
    """Records that are not known to be in the log; some of them may be."""

    reason: str
    line = "Kafka has not acknowledged them: {reason}; post them again, they count once"


class ChoiceLog:
    """Writes records of choices to Kafka; until it has connected, it accepts none."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._topic = topic_name(settings.kafka, "choices")
        self._encoding = Encoding("choices", settings.kafka)
        self._producer: AIOKafkaProducer | None = None
        self._partitions = 0
        self._waiting = Waiting(lambda line: _log.warning("choices wait", cause=line))

    async def connect(self) -> None:
        """Wait for broker, topic and the right to write it, and connect. Raises what waiting cannot cure."""
        await self._waiting.until(self._connect)

    async def append(self, records: Sequence[ChoiceRecord]) -> None:
        """Return when Kafka has acknowledged every record.

        Raises Unacknowledged, after ANSWER_SECONDS at most. Some of them may be in the log nevertheless.
        """
        if self._producer is None:
            raise Unacknowledged(self._waiting.cause or "still connecting")
        try:
            await asyncio.wait_for(self._send(self._producer, records), ANSWER_SECONDS)
        except KAFKA_FAILURES as error:
            raise Unacknowledged(failure_reason(error)) from error

    async def stop(self) -> None:
        """Disconnect."""
        producer, self._producer = self._producer, None
        if producer is not None:
            await _stopped(producer)

    async def _send(self, producer: AIOKafkaProducer, records: Sequence[ChoiceRecord]) -> None:
        sent = []
        try:
            for record in records:
                key = record.request_id.encode()
                future = await producer.send(
                    self._topic,
                    self._encoding.value(record),
                    key=key,
                    partition=partition_of_key(key, self._partitions),
                    headers=self._encoding.headers(record.replica, record.request_id, record.time),
                )
                sent.append(future)
            await asyncio.gather(*sent)
        finally:
            for future in sent:
                future.cancel()

    async def _connect(self) -> None:
        kafka = self._settings.kafka
        found = await describe(self._settings)
        require_rights(found, kafka, [RECORDING])
        self._encoding.prefixes = await prefixes(kafka, "choices")
        compression = compression_of(kafka, "choices")
        producer = AIOKafkaProducer(
            acks="all",
            # A record that is in the log twice counts once (`ChoiceRow`). An idempotent producer would
            # keep trying long after its router was answered that the records are unacknowledged.
            enable_idempotence=False,
            compression_type=None if compression == "none" else compression,
            request_timeout_ms=int(ANSWER_SECONDS * 1000),
            **client_options(kafka),
        )
        try:
            await producer.start()
        except KAFKA_FAILURES as error:
            await _stopped(producer)
            raise KafkaUnavailable(kafka.bootstrap_servers, failure_reason(error)) from error
        except asyncio.CancelledError:
            await _stopped(producer)
            raise
        self._partitions = next(topic.partitions for topic in found if topic.name == self._topic)
        self._producer = producer


async def _stopped(producer: AIOKafkaProducer) -> None:
    with contextlib.suppress(*KAFKA_FAILURES):
        await ended_within(STOP_SECONDS, producer.stop())
