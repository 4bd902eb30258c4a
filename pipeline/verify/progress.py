"""Says on a terminal how long a comparison will take, and then, over one line, how far it is."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TextIO

_EVERY_SECONDS = 0.2
_MEASURED_SECONDS = 1.0
"""Of reading, before it says how long all of it will take."""
_ERASE = "\r\x1b[K"


class Progress:
    """Writes to a terminal, and nothing at all where nobody watches."""

    def __init__(self, out: TextIO | None, clock: Callable[[], float] = time.monotonic) -> None:
        self._out = out if out is not None and out.isatty() else None
        self._clock = clock
        self._next = self._measured_from = clock()
        self._step = ""
        self._topic = ""
        self._expected: dict[str, int] = {}
        """Records of topics that are not read to their end."""
        self._records = self._records_of_topic = self._bytes = 0
        self._estimated = False

    def expect(self, topic: str, records: int) -> None:
        """Note how many records of a topic there are to read; call before the first is read."""
        self._expected[topic] = records

    def partition(self, topic: str, number: int, partitions: int) -> None:
        """Begin with a partition of a topic; `number` counts from 0."""
        if topic != self._topic:
            # Records of one topic say nothing about the time that those of another need.
            self._expected.pop(self._topic, None)
            self._topic, self._records_of_topic, self._measured_from = topic, 0, self._clock()
        self.step(f"reading {topic}, partition {number + 1} of {partitions}")

    def step(self, step: str) -> None:
        """Say what begins now."""
        self._step = step
        self._show()

    def record(self, length: int) -> None:
        """Count a record of so many bytes that was read."""
        self._records += 1
        self._records_of_topic += 1
        self._bytes += length
        if self._out is not None and self._clock() >= self._next:
            self._show()

    def end(self) -> None:
        """Leave the line empty."""
        self._write(_ERASE)

    def _show(self) -> None:
        now = self._clock()
        self._next = now + _EVERY_SECONDS
        measured = now - self._measured_from
        rate = self._records_of_topic / max(measured, _EVERY_SECONDS)
        to_read = max(sum(self._expected.values()) - self._records_of_topic, 0)
        left = ""
        if rate and to_read and measured >= _MEASURED_SECONDS:
            seconds = to_read / rate
            if not self._estimated:
                self._estimate(to_read, seconds)
            left = f", {_spoken(seconds)} left"
        self._write(f"{_ERASE}{self._step} ({self._records:,} records, {rate:,.0f} records/s{left})")

    def _estimate(self, to_read: int, seconds: float) -> None:
        """Keep one line that says what all of it comes to, as the first second suggests."""
        self._estimated = True
        records = self._records + to_read
        megabytes = self._bytes / self._records * records / 1e6
        self._write(f"{_ERASE}{records:,} records, about {_spoken(seconds)}, {megabytes:,.0f} MB to read\n")

    def _write(self, text: str) -> None:
        if self._out is not None:
            self._out.write(text)
            self._out.flush()


def _spoken(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 90 else f"{seconds / 60:.0f} min"
