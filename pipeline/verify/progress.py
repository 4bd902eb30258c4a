"""One line on a terminal that says how far a comparison is."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TextIO

_EVERY_SECONDS = 0.2
_ERASE = "\r\x1b[K"


class Progress:
    """Writes over its own line, and nothing at all where nobody watches."""

    def __init__(self, out: TextIO | None, clock: Callable[[], float] = time.monotonic) -> None:
        self._out = out if out is not None and out.isatty() else None
        self._clock = clock
        self._began = self._next = clock()
        self._step = ""
        self._records = 0

    def partition(self, topic: str, number: int, partitions: int) -> None:
        """Begin with a partition of a topic; `number` counts from 0."""
        self.step(f"reading {topic}, partition {number + 1} of {partitions}")

    def step(self, step: str) -> None:
        """Say what begins now."""
        self._step = step
        self._show()

    def record(self) -> None:
        """Count a record that was read."""
        self._records += 1
        if self._out is not None and self._clock() >= self._next:
            self._show()

    def end(self) -> None:
        """Leave the line empty."""
        self._write(_ERASE)

    def _show(self) -> None:
        now = self._clock()
        self._next = now + _EVERY_SECONDS
        rate = self._records / max(now - self._began, _EVERY_SECONDS)
        self._write(f"{_ERASE}{self._step} ({self._records:,} records, {rate:,.0f} records/s)")

    def _write(self, text: str) -> None:
        if self._out is not None:
            self._out.write(text)
            self._out.flush()
