"""Messages as the subscriber hands them over."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace

from connectors.frames.bundle import Bundle, Bundles
from connectors.sources import Peer, SourceKey

Key = SourceKey | Peer
"""A source that has a socket of its own, or a peer that connects to a socket of ours."""

MESSAGE_OVERHEAD_BYTES = 200
"""Memory of a waiting message beyond its payload."""


@dataclass(slots=True)  # frozen ones take three times as long to make
class Received:
    """Messages of one source, in order."""

    source: Key
    messages: Bundle
    received_at: float
    """Seconds since the epoch, when they were taken from the socket."""
    size: int
    """Bytes they count against the bound of the hand-over."""
    last: bool = False
    """True when the source was removed: nothing of it comes after this."""
    left_out: int = 0
    """Messages of a peer that came while it was paused, and are not here."""

    def split(self, size: int) -> tuple[Received, Received]:
        """Return the first messages, as many as `size` bytes hold but at least one, and the others."""
        first, others = self.messages.split(size, MESSAGE_OVERHEAD_BYTES)
        taken = min(self.size, first.size + MESSAGE_OVERHEAD_BYTES * len(first))
        return replace(self, messages=first, size=taken), replace(
            self, messages=others, size=self.size - taken
        )


@dataclass(slots=True)
class Together:
    """Messages of several sources with a few each, handed over as one."""

    sources: list[SourceKey]
    bundles: Bundles
    """In the order of the sources."""
    received_at: float
    """As in `Received`."""
    size: int

    def of(self, number: int) -> Received:
        """Return the messages of one source on their own."""
        bundle = self.bundles.bundle(number)
        size = bundle.size + MESSAGE_OVERHEAD_BYTES * len(bundle)
        return Received(self.sources[number], bundle, self.received_at, size)


class PendingPeers:
    """Messages of peers whose streams are yet to begin; they still count against the subscriber's bound."""

    def __init__(self) -> None:
        self._waiting: dict[SourceKey, list[Received]] = {}

    def add(self, source: SourceKey, received: Received) -> None:
        self._waiting.setdefault(source, []).append(received)

    def take(self, source: SourceKey) -> list[Received]:
        """Remove and return what waits of a source, in order."""
        return self._waiting.pop(source, [])

    def take_others(self, expected: Collection[SourceKey]) -> list[Received]:
        """Remove and return what waits of sources that are not expected."""
        others = [source for source in self._waiting if source not in expected]
        return [received for source in others for received in self.take(source)]
