"""What aiokafka raises when Kafka cannot be used, and the errors that tell operators so in one line."""

from __future__ import annotations

import asyncio
import re
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import field

from aiokafka.errors import (
    KafkaError,
    MessageSizeTooLargeError,
    RecordListTooLargeError,
    UnknownTopicOrPartitionError,
)

from connectors.process.errors import OperatorError

KAFKA_FAILURES = (KafkaError, OSError, asyncio.TimeoutError)
TOO_LARGE = (MessageSizeTooLargeError, RecordListTooLargeError)
"""What a broker answers to records that it never takes."""


class BrokerUnreachable(OperatorError):
    """No broker answers."""

    heals = True
    bootstrap_servers: str
    reason: str
    line = (
        "no Kafka broker answers at {bootstrap_servers} ({reason}); "
        "start it or correct kafka.bootstrap_servers"
    )


class LoginRefused(OperatorError):
    """A broker answers but refuses the login.

    It may heal if it came from files, as these are read again. Tried seldom: failed logins may be counted.
    """

    again_seconds = 60.0
    address: str
    reason: str
    heals: bool = field(default=False, kw_only=True)
    line = (
        "Kafka at {address} refuses the login: {reason}; check kafka.security_protocol, "
        "kafka.sasl_username and its password (or kafka.sasl_token_file), and the certificates"
    )


class TopicMissing(OperatorError):
    """A topic does not exist."""

    heals = True
    topic: str
    line = "topic {topic} does not exist; run `kvlens topics apply`"


class TopicMadeAgain(OperatorError):
    """A topic was deleted and created again: what is known of the old one is useless for the new one."""

    heals = True
    topic: str
    before: str
    """Its former id (KIP-516)."""
    now: str
    what_follows: str
    line = "topic {topic} was deleted and made again (id {before}, now {now}): {what_follows}"


class TopicHidden(OperatorError):
    """This user may not see a topic, so it cannot know whether the topic exists."""

    heals = True
    topic: str
    line = (
        "this user may not see the topic {topic}; "
        "give kafka.sasl_username its rights on it, at least Describe (docs/acls.md)"
    )


class RightMissing(OperatorError):
    """This user lacks a right on a topic that it needs."""

    heals = True
    topic: str
    operation: str
    line = (
        "this user lacks {operation} on the topic {topic}; give kafka.sasl_username this right (docs/acls.md)"
    )


_NUMBER = re.compile(r"\[Error -?\d+\] ")
_NO_BOOTSTRAP = "Unable to bootstrap from"
"""What aiokafka raises when a broker accepts the connection and closes it at the first request."""


@contextmanager
def partition_known(topic: str, partition: int) -> Iterator[None]:
    """Send within it: where a topic was made again with fewer partitions, aiokafka's producer only asserts.

    Raises UnknownTopicOrPartitionError.
    """
    try:
        yield
    except AssertionError as error:
        raise UnknownTopicOrPartitionError(f"{topic} has no partition {partition} any more") from error


def failure_reason(error: BaseException) -> str:
    """Return the kind of an error and its message, if any; plain words for those that operators meet."""
    kind, message = type(error).__name__, _NUMBER.sub("", str(error), count=1)
    if isinstance(error, socket.gaierror):
        return error.strerror or message
    if isinstance(error, ConnectionRefusedError):
        return "connection refused"
    if isinstance(error, (TimeoutError, asyncio.TimeoutError)) and not message:
        return "no answer in time"
    if isinstance(error, TOO_LARGE):
        return "larger than the topic's max.message.bytes, or the broker's message.max.bytes, allows"
    if _NO_BOOTSTRAP in message:
        return "it closes the connection, as a port does that wants another kafka.security_protocol"
    # The messages of aiokafka's own errors begin with their kind.
    return message if message.startswith(kind) else f"{kind}: {message}" if message else kind
