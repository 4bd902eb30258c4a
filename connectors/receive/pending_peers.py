"""Messages of engines that have just connected to us, until their streams exist."""

from __future__ import annotations

from collections.abc import Collection

from connectors.receive.received import Received
from connectors.sources import SourceKey


class PendingPeers:
    """What waits here counts against the subscriber's bound: nobody has released it."""

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
