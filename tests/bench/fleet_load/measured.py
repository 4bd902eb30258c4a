"""What one part did with the load of so many replicas, and the figures that say so."""

from __future__ import annotations

import time
from dataclasses import dataclass

from figures import Figures
from processes import cpu_seconds, waited_seconds

from fleet_load.load import Paced
from fleet_load.replicas import BATCHES_A_SECOND, LOAD_SECONDS


@dataclass(frozen=True)
class Spent:
    """What a process took of the cores, per second."""

    cores: float
    """CPU seconds, all threads."""
    waited: float
    """Seconds that its main thread was ready while others had the cores."""


class Spending:
    """Reads what a process takes from now on."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._before = self._now()

    def spent(self) -> Spent:
        began, used, waited = self._before
        at, used_now, waited_now = self._now()
        return Spent((used_now - used) / (at - began), (waited_now - waited) / (at - began))

    def _now(self) -> tuple[float, float, float]:
        return time.monotonic(), cpu_seconds(self._pid), waited_seconds(self._pid)


@dataclass(frozen=True)
class Measured:
    """Of the seconds that count."""

    part: str
    replicas: int
    share: float
    """Of the load that it kept up with."""
    spent: Spent
    batches: float
    """Handled a second, to the end of the part."""
    records: float
    """Handled a second, that it reads itself (a connector: writes)."""
    pause: float
    """Seconds that the event loop made others wait, at most."""
    lag: float
    """Seconds that the end of what it wrote is behind the engines, in the end."""
    load: Paced

    @property
    def replicas_a_core(self) -> float:
        return self.batches / BATCHES_A_SECOND / self.spent.cores

    def tell(self, figures: Figures) -> None:
        name = f"fleet-load, {self.replicas:,} replicas, {self.part}"
        figures.add(f"{name}: kept up with", self.share * 100, "% of the load")
        figures.add(f"{name}: CPU a batch", self.spent.cores / self.batches * 1e6, "µs")
        figures.add(f"{name}: CPU a record", self.spent.cores / self.records * 1e6, "µs")
        figures.add(f"{name}: waited for a core", self.spent.waited * 100, "% of the time")
        figures.add(f"{name}: longest pause", self.pause * 1e3, "ms")
        figures.add(f"{name}: lag in the end", self.lag, "s")
        figures.add(f"{name}: CPU of the load itself", self.load.cpu / LOAD_SECONDS * 100, "% of a core")
        figures.add(f"{name}: the load itself was late by", self.load.late, "s")
        figures.add(f"{name}: replicas per core", self.replicas_a_core, "")
