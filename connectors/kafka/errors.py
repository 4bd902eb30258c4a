"""What aiokafka raises when Kafka cannot be used, and how one line says it."""

from __future__ import annotations

import asyncio

from aiokafka.errors import KafkaError

from connectors.process.errors import OperatorError

KAFKA_FAILURES = (KafkaError, OSError, asyncio.TimeoutError)


class TopicMissing(OperatorError):
    """A topic does not exist, or this user may not see it."""

    def __init__(self, topic: str) -> None:
        super().__init__(topic)
        self.topic = topic

    def __str__(self) -> str:
        return (
            f"topic {self.topic} does not exist, or this user may not Describe it; "
            "run `kvlens topics apply`, or grant the right (docs/acls.md)"
        )


def failure_reason(error: BaseException) -> str:
    """Return the kind of an error and its message, if it has one."""
    kind, message = type(error).__name__, str(error)
    # What aiokafka raises begins with its kind already.
    return message if message.startswith(kind) else f"{kind}: {message}" if message else kind
