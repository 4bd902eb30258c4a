"""What aiokafka raises when Kafka cannot be used, and how one line says it."""

from __future__ import annotations

import asyncio

from aiokafka.errors import KafkaError

KAFKA_FAILURES = (KafkaError, OSError, asyncio.TimeoutError)


def failure_reason(error: BaseException) -> str:
    """Return the kind of an error and its message, if it has one."""
    kind, message = type(error).__name__, str(error)
    # What aiokafka raises begins with its kind already.
    return message if message.startswith(kind) else f"{kind}: {message}" if message else kind
