"""Keeps a log line that would repeat without end to one in ten seconds."""

from __future__ import annotations

import time
from collections.abc import Callable


class Limited:
    """Says whether a line is due again."""

    def __init__(self, seconds: float = 10.0, clock: Callable[[], float] = time.monotonic) -> None:
        self._seconds = seconds
        self._clock = clock
        self._next = float("-inf")

    def due(self) -> bool:
        """Return True at most once in `seconds`."""
        now = self._clock()
        if now < self._next:
            return False
        self._next = now + self._seconds
        return True
