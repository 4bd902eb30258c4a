"""When the checkpoint rounds of an agent begin: at multiples of a period, whatever they take."""

from __future__ import annotations

import math


class Schedule:
    """Beginnings at equal distances. Those that a long round covers are left out and not made up for."""

    def __init__(self, seconds: float, began: float) -> None:
        """The first beginning is `seconds` after `began`, a time of the clock that `pause` gets."""
        self._seconds = seconds
        self._began = began
        self._number = 0

    def pause(self, now: float) -> float:
        """Return how long to wait for the next beginning, seconds above 0."""
        coming = math.floor((now - self._began) / self._seconds) + 1
        # A timer may fire a little early: what has begun then does not begin again.
        self._number = max(self._number + 1, coming)
        return self._began + self._number * self._seconds - now
