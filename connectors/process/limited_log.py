"""Keeps log lines that would repeat without end to one a minute."""

from __future__ import annotations

import time
from collections.abc import Callable

LOG_SECONDS = 60.0
"""A line is logged once in this time; the next one says how many were left out."""
LOG_KEYS = 10_000
"""Distinct lines that are remembered for that."""


class LogLimiter:
    """Lets one line per key through in LOG_SECONDS."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._seen: dict[tuple[str, ...], tuple[float, int]] = {}

    def admit(self, *key: str) -> dict[str, int] | None:
        """Return what to add to a line: how many of its key were left out before it; None to leave it out."""
        now = self._clock()
        last, suppressed = self._seen.get(key, (float("-inf"), 0))
        if now - last < LOG_SECONDS:
            self._seen[key] = (last, suppressed + 1)
            return None
        if len(self._seen) >= LOG_KEYS:
            self._seen.clear()
        self._seen[key] = (now, 0)
        return {"suppressed": suppressed} if suppressed else {}
