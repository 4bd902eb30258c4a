"""Shows on a terminal what a comparison will cost and then, on one line that it rewrites, how far it is."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import NamedTuple, TextIO

_EVERY_SECONDS = 0.2
_MEASURED_SECONDS = 1.0
"""Seconds of reading a topic before its speed is used to estimate the rest."""
_ERASE = "\r\x1b[K"


class ReadingCost(NamedTuple):
    """What reading a topic costs, estimated by a trial."""

    offsets: int
    seconds: float
    megabytes: float


class Progress:
    """Writes to a terminal on which lines can be overwritten, and nothing at all without one."""

    def __init__(
        self,
        out: TextIO | None,
        clock: Callable[[], float] = time.monotonic,
        fitted: Callable[[str], str] = str,
    ) -> None:
        """`fitted` cuts a line to the width of the terminal."""
        self._out = out
        self._clock = clock
        self._fitted = fitted
        self._next = self._measured_from = clock()
        self._step = ""
        self._topic = ""
        self._reading = False
        self._expected: dict[str, int] = {}
        """Records of the topics that were not read to their end yet."""
        self._seconds: dict[str, float] = {}
        """Seconds to read them, where a trial showed it."""
        self._records = self._records_of_topic = 0

    @property
    def watched(self) -> bool:
        """Whether there is a terminal."""
        return self._out is not None

    def expect(self, topic: str, records: int) -> None:
        """Note how many records of a topic there are to read; call before the first is read."""
        self._expected[topic] = records

    def estimate(self, costs: Mapping[str, ReadingCost], memory_megabytes: float) -> None:
        """Write lines, which stay, with the total cost: from a trial of topics and the number of rows."""
        self._seconds = {topic: cost.seconds for topic, cost in costs.items()}
        lines = []
        if costs:
            records = sum(self._expected.values())
            seconds = sum(cost.seconds for cost in costs.values())
            megabytes = sum(cost.megabytes for cost in costs.values())
            lines.append(f"{records:,} records, about {_spoken(seconds)}, {megabytes:,.0f} MB to read")
        lines.append(
            f"up to {memory_megabytes:,.0f} MB of memory for rows, besides the blocks that are resident"
        )
        self._write("".join(f"{_ERASE}{line}\n" for line in lines))

    def partition(self, topic: str, number: int, partitions: int) -> None:
        """Begin with a partition of a topic; `number` counts from 0."""
        if topic != self._topic:
            # Records of one topic say nothing about the time that those of another need.
            self._expected.pop(self._topic, None)
            self._topic, self._records_of_topic, self._measured_from = topic, 0, self._clock()
        self.step(f"reading {topic}, partition {number + 1} of {partitions}")
        self._reading = True

    def step(self, step: str) -> None:
        """Show what begins now."""
        self._step = step
        self._reading = False
        self._show()

    def record(self) -> None:
        """Count a record that was read."""
        self._records += 1
        self._records_of_topic += 1
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
        if not self._reading or not self._records_of_topic:  # nothing is being read, so there is no speed
            self._draw(f"{self._step} ({self._records:,} records)")
            return
        left = ""
        seconds = self._seconds_left(rate) if measured >= _MEASURED_SECONDS else 0.0
        if seconds:
            left = f", {_spoken(seconds)} left"
        self._draw(f"{self._step} ({self._records:,} records, {rate:,.0f} records/s{left})")

    def _seconds_left(self, rate: float) -> float:
        """Return the seconds for the rest of this topic at this rate, and for later ones by trial or rate."""
        if not rate:
            return 0.0
        left = max(self._expected.get(self._topic, 0) - self._records_of_topic, 0) / rate
        for topic, records in self._expected.items():
            if topic != self._topic:
                left += self._seconds.get(topic, records / rate)
        return left

    def _draw(self, line: str) -> None:
        self._write(_ERASE + self._fitted(line))

    def _write(self, text: str) -> None:
        if self._out is not None:
            self._out.write(text)
            self._out.flush()


def _spoken(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 90 else f"{seconds / 60:.0f} min"
