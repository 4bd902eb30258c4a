"""A process of load: says when it is ready, waits for the word, and keeps its own pace."""

from __future__ import annotations

import sys
import time


class Pace:
    """Equal steps from now on."""

    def __init__(self, steps_a_second: float) -> None:
        self._step = 1 / steps_a_second
        self._next = time.monotonic()
        self._busy = time.process_time()
        self._latest = 0.0

    def pause(self) -> float:
        """Return how long to wait before the next step, 0 when it is late already."""
        pause = self._next - time.monotonic()
        self._latest = max(self._latest, -pause)
        self._next += self._step
        return max(0.0, pause)

    def done(self) -> None:
        """Say by how much a step was late at most, and the CPU seconds since the beginning."""
        say(f"done {self._latest:.3f} {time.process_time() - self._busy:.3f}")


def say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def wait_for(word: str) -> None:
    """Return when the parent says the word."""
    line = sys.stdin.readline().strip()
    if line != word:
        raise SystemExit(f"was told {line!r} instead of {word!r}")
