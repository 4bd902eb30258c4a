"""Messages as the subscriber hands them over."""

from __future__ import annotations

from dataclasses import dataclass

from connectors.frames.bundle import Bundle
from connectors.sources import Peer, SourceKey

Key = SourceKey | Peer
"""A source that has a socket of its own, or one of those that connect to a socket of ours."""


@dataclass(frozen=True, slots=True)
class Received:
    """Messages of one source, in order."""

    source: Key
    messages: Bundle
    received_at: float
    """Clock of the subscriber, seconds since the epoch, when they were taken from the socket."""
    size: int
    """Bytes they count against the bound of the hand-over."""
    last: bool = False
    """True when the source was removed: nothing of it comes after this."""
