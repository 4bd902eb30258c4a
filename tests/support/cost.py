"""What a piece of work costs in CPU, told in a yardstick's: a machine that is slow or busy is so for both."""

from __future__ import annotations

import time
from collections.abc import Callable

STEPS = 1_000_000
"""Steps of the yardstick, a twentieth of a second on the machine that the tests' bounds were written on."""


def cpu_seconds(work: Callable[[], object]) -> float:
    """Return the CPU time of this thread that the work takes."""
    began = time.thread_time()
    work()
    return time.thread_time() - began


def yardsticks(work: Callable[[], object]) -> float:
    """Return how many times the yardstick, run before and after, the work takes."""
    before = cpu_seconds(_count)
    cost = cpu_seconds(work)
    return cost / min(before, cpu_seconds(_count))


def _count() -> int:
    count = 0
    for number in range(STEPS):
        count ^= number * 3
    return count
