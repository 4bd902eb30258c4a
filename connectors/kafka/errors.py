"""What aiokafka raises when Kafka cannot be used, and how one line says it."""

from __future__ import annotations

import asyncio
import re
import socket

from aiokafka.errors import KafkaError

from connectors.process.errors import OperatorError

KAFKA_FAILURES = (KafkaError, OSError, asyncio.TimeoutError)


class BrokerUnreachable(OperatorError):
    """No broker answers."""

    heals = True

    def __init__(self, bootstrap_servers: str, reason: str) -> None:
        super().__init__(bootstrap_servers, reason)
        self.bootstrap_servers = bootstrap_servers
        self.reason = reason

    def __str__(self) -> str:
        return (
            f"no Kafka broker answers at {self.bootstrap_servers} ({self.reason}); "
            "start it or correct kafka.bootstrap_servers"
        )


class LoginRefused(OperatorError):
    """A broker answers and does not let us in.

    What comes from files heals, for they are read again. Seldom tried: some count the logins that fail.
    """

    again_seconds = 60.0

    def __init__(self, address: str, reason: str, *, heals: bool = False) -> None:
        super().__init__(address, reason)
        self.address = address
        self.reason = reason
        self.heals = heals

    def __str__(self) -> str:
        return (
            f"Kafka at {self.address} refuses the login: {self.reason}; check kafka.security_protocol, "
            "kafka.sasl_username and its password (or kafka.sasl_token_file), and the certificates"
        )


class CertificateUnreadable(OperatorError):
    """A file of the settings that the login is made with cannot be used."""

    def __init__(self, setting: str, file: str, reason: str) -> None:
        super().__init__(setting, file, reason)
        self.setting = setting
        self.file = file
        self.reason = reason

    def __str__(self) -> str:
        return f"cannot use {self.file} of kafka.{self.setting}: {self.reason}"


class TopicMissing(OperatorError):
    """A topic does not exist."""

    heals = True

    def __init__(self, topic: str) -> None:
        super().__init__(topic)
        self.topic = topic

    def __str__(self) -> str:
        return f"topic {self.topic} does not exist; run `kvlens topics apply`"


class TopicMadeAgain(OperatorError):
    """A topic was deleted and made again: what is known of the old one is no use in the new one."""

    heals = True

    def __init__(self, topic: str, before: str, now: str, what_follows: str) -> None:
        """`before` and `now` are ids of topics (KIP-516)."""
        super().__init__(topic, before, now, what_follows)
        self.topic = topic
        self.before = before
        self.now = now
        self.what_follows = what_follows

    def __str__(self) -> str:
        return (
            f"topic {self.topic} was deleted and made again (id {self.before}, now {self.now}): "
            f"{self.what_follows}"
        )


class TopicHidden(OperatorError):
    """This user may not see a topic, so nobody tells it whether the topic exists."""

    heals = True

    def __init__(self, topic: str) -> None:
        super().__init__(topic)
        self.topic = topic

    def __str__(self) -> str:
        return (
            f"this user may not see the topic {self.topic}; "
            "give kafka.sasl_username its rights on it, at least Describe (docs/acls.md)"
        )


class RightMissing(OperatorError):
    """This user may not do with a topic what it has to."""

    heals = True

    def __init__(self, topic: str, operation: str) -> None:
        super().__init__(topic, operation)
        self.topic = topic
        self.operation = operation

    def __str__(self) -> str:
        return (
            f"this user lacks {self.operation} on the topic {self.topic}; "
            "give kafka.sasl_username this right (docs/acls.md)"
        )


_NUMBER = re.compile(r"\[Error -?\d+\] ")
_NO_BOOTSTRAP = "Unable to bootstrap from"
"""What aiokafka raises when a broker took the connection and ends it at the first request."""


def failure_reason(error: BaseException) -> str:
    """Return the kind of an error and its message, if it has one; in plain words what operators meet."""
    kind, message = type(error).__name__, _NUMBER.sub("", str(error), count=1)
    if isinstance(error, socket.gaierror):
        return error.strerror or message
    if isinstance(error, ConnectionRefusedError):
        return "connection refused"
    if isinstance(error, (TimeoutError, asyncio.TimeoutError)) and not message:
        return "no answer in time"
    if _NO_BOOTSTRAP in message:
        return "it closes the connection, as a port does that wants another kafka.security_protocol"
    # What aiokafka raises begins with its kind already.
    return message if message.startswith(kind) else f"{kind}: {message}" if message else kind
