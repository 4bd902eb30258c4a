"""When partitions were last polled, for how far the index is behind."""

from __future__ import annotations

import time


class PollTimes:
    """Gives them by a monotonic clock.

    Kafka's client tells them by the wall clock, which may be set back while a broker is away.
    """

    def __init__(self) -> None:
        self._known: dict[int, tuple[int, float]] = {}
        """What the client told last, and when that was."""

    def of(self, partition: int, told: int) -> float:
        """Return when a partition was polled; `told`: in milliseconds since the epoch."""
        known = self._known.get(partition)
        if known is None or known[0] != told:
            known = self._known[partition] = told, time.monotonic() - max(0.0, time.time() - told / 1000)
        return known[1]
