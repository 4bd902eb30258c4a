"""Sources: how event streams are named, where they are, and who publishes them."""

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
    session_name: str = ""
    """Name of the engine session from outside, such as the UID of its pod; empty where there is none."""
    place: tuple[str, str, str] | None = None
    """As in `PositionRecord`."""

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
    """The publisher of one topic on a listening endpoint."""

    listening: Listening
    topic: bytes


class SourcesNotAdded(OperatorError):
    """Sources cannot be read now; adding them may be tried again."""
