"""What an event stream is called, where it is, and who publishes it."""

from __future__ import annotations

from dataclasses import dataclass

from connectors.process.errors import OperatorError

SourceKey = tuple[str, int]
"""(replica id, dp_rank)."""


@dataclass(frozen=True, slots=True)
class Source:
    """Identity of an event stream, and where it is."""

    replica: str
    dp_rank: int
    model: str
    tenant: str
    hash_domain: str
    endpoint: str
    replay_endpoint: str | None = None
    topic: str = ""
    shared_sequence: bool = False
    """Whether the publisher numbers the messages of other topics along with those of this one."""
    metrics_url: str | None = None
    role: str = ""
    """As in `schemas.settings.Role`."""
    life: str = ""
    """What the engine's session is called, such as the UID of its pod; empty where nobody says."""
    place: tuple[str, str, str] | None = None
    """As in its position."""

    @property
    def key(self) -> SourceKey:
        return (self.replica, self.dp_rank)


@dataclass(frozen=True, slots=True)
class Listening:
    """An endpoint that engines of one data-parallel rank connect to."""

    endpoint: str
    rank: int


@dataclass(frozen=True, slots=True)
class Peer:
    """Who publishes under one topic on a listening endpoint."""

    listening: Listening
    topic: bytes


class SourcesNotAdded(OperatorError):
    """Sources cannot be read now; it may be tried again."""
