"""A consumer of the log that follows what it is assigned, without a group."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from aiokafka import AIOKafkaConsumer

from connectors.kafka.consumer import started_consumer
from connectors.kafka.errors import KAFKA_FAILURES, failure_reason
from connectors.kafka.security import client_options
from pipeline.errors import KafkaUnavailable
from schemas.settings import Kafka

_FETCH_BYTES = 4 << 20


@asynccontextmanager
async def log_consumer(kafka: Kafka, **options: Any) -> AsyncIterator[AIOKafkaConsumer]:
    """Yield a consumer that never commits; `options` are aiokafka's. Raises KafkaUnavailable."""
    try:
        async with started_consumer(
            enable_auto_commit=False,
            auto_offset_reset="none",
            max_partition_fetch_bytes=_FETCH_BYTES,
            **client_options(kafka),
            **options,
        ) as consumer:
            yield consumer
    except KAFKA_FAILURES as error:
        raise KafkaUnavailable(kafka.bootstrap_servers, failure_reason(error)) from error
