"""Messages of engines that have just connected to us, until their streams exist."""

from __future__ import annotations

from collections.abc import Collection

from connectors.source import SourceKey
from connectors.subscriber import Received


class HeldMessages:
    """Nothing held is released to the subscriber, whose bound so is that of this, too."""

    def __init__(self) -> None:
        self._held: dict[SourceKey, list[Received]] = {}

    def hold(self, source: SourceKey, received: Received) -> None:
        self._held.setdefault(source, []).append(received)

    def take(self, source: SourceKey) -> list[Received]:
        """Return what was held of a source, in order; nothing is any longer."""
        return self._held.pop(source, [])

    def take_others(self, expected: Collection[SourceKey]) -> list[Received]:
        """Likewise of all sources that are no longer expected."""
        others = [source for source in self._held if source not in expected]
        return [received for source in others for received in self.take(source)]
