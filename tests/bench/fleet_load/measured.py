"""What one part did with the load of so many replicas, and the figures that say so."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from figures import Figures
from processes import cpu_seconds, waited_seconds

from fleet_load.load import Paced
from fleet_load.replicas import BATCHES_A_SECOND, LOAD_SECONDS


@dataclass(frozen=True)
class Spent:
    """What processes took of the cores, per second."""

    cores: float
    """CPU seconds, all threads."""
    waited: float
    """Seconds that their main threads were ready while others had the cores."""


class Spending:
    """Reads what processes take from now on."""

    def __init__(self, pids: Sequence[int]) -> None:
        self._pids = pids
        self._readings: list[tuple[float, float, float]] = []
        """(time, CPU seconds, seconds waited)"""
        self.read()

    def read(self) -> None:
        """Read once more, for `spent` between times of which none is far from a reading."""
        used, waited = sum(map(cpu_seconds, self._pids)), sum(map(waited_seconds, self._pids))
        self._readings.append((time.monotonic(), used, waited))

    def spent(self, span: tuple[float, float] | None = None) -> Spent:
        """Return what they took between two times of the monotonic clock, else until now."""
        self.read()
        times, used, waited = zip(*self._readings, strict=True)
        began, ended = span or (times[0], times[-1])
        return Spent(
            *(
                float(np.diff(np.interp((began, ended), times, each))[0]) / (ended - began)
                for each in (used, waited)
            )
        )


@dataclass(frozen=True)
class Measured:
    """Of the seconds that count."""

    part: str
    """With the number of its processes, where there are several."""
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
    def name(self) -> str:
        return f"fleet-load, {self.replicas:,} replicas, {self.part}"

    @property
    def cpu_a_batch(self) -> float:
        """CPU seconds."""
        return self.spent.cores / self.batches

    @property
    def replicas_a_core(self) -> float:
        return self.batches / BATCHES_A_SECOND / self.spent.cores

    def tell(self, figures: Figures) -> None:
        name = self.name
        figures.add(f"{name}: kept up with", self.share * 100, "% of the load")
        figures.add(f"{name}: CPU a batch", self.cpu_a_batch * 1e6, "µs")
        figures.add(f"{name}: CPU a record", self.spent.cores / self.records * 1e6, "µs")
        figures.add(f"{name}: CPU", self.spent.cores * 100, "% of a core")
        figures.add(f"{name}: waited for a core", self.spent.waited * 100, "% of the time")
        figures.add(f"{name}: longest pause", self.pause * 1e3, "ms")
        figures.add(f"{name}: lag in the end", self.lag, "s")
        figures.add(f"{name}: CPU of the load itself", self.load.cpu / LOAD_SECONDS * 100, "% of a core")
        figures.add(f"{name}: the load itself was late by", self.load.late, "s")
        figures.add(f"{name}: replicas per core", self.replicas_a_core, "")
