"""What faults act on: the installation, its engines and their traffic."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field

from clickhouse_connect.driver.exceptions import ClickHouseError

from tests.system.faults.campaign.engines.engine import TroubledEngine
from tests.system.faults.campaign.engines.traffic import Traffic
from tests.system.faults.campaign.surroundings.installation import Installation
from tests.system.faults.campaign.surroundings.part import Part

_LOOK_SECONDS = 0.25
_NEWEST = "SELECT replica, toUnixTimestamp64Milli(max(last_batch_at)) FROM stream_health_10s GROUP BY replica"


class NotLive(AssertionError):
    """Some engines' batches did not get into the tables in time; `behind` has seconds by engine."""

    def __init__(self, behind: dict[str, float], seconds: float) -> None:
        super().__init__(behind, seconds)
        self.behind = behind
        self.seconds = seconds

    def __str__(self) -> str:
        return f"not live after {self.seconds:.0f} s; behind by seconds: {self.behind}"


@dataclass
class Site:
    """One campaign's surroundings."""

    installation: Installation
    engines: Sequence[TroubledEngine]
    liars: Sequence[TroubledEngine]
    """Those whose replays may lie; part of `engines`."""
    traffic: Traffic
    silent: set[str] = field(default_factory=set)
    """Engines that publish nothing now."""

    def worker(self, rng: random.Random) -> Part:
        """Return one of the workers that run."""
        return rng.choice(self.installation.running_workers or self.installation.workers[:1])

    def engine(self, rng: random.Random) -> TroubledEngine:
        """Return an honest engine that lives."""
        return rng.choice([one for one in self.engines if one not in self.liars and not one.ended])

    def wait_live(self, seconds: float) -> float:
        """Wait until batches published from now on are in the tables; return how long. Raises NotLive."""
        began, since = time.monotonic(), time.time()
        while behind := self._behind(since):
            if time.monotonic() - began > seconds:
                raise NotLive(behind, seconds)
            time.sleep(_LOOK_SECONDS)
        return time.monotonic() - began

    def _behind(self, since: float) -> dict[str, float]:
        living = {one.name for one in self.engines if not one.ended} - self.silent
        try:
            newest = {name: (at or 0) / 1000 for name, at in self.installation.query(_NEWEST)}
        except (ClickHouseError, OSError):
            newest = {}
        return {
            name: round(since - newest.get(name, 0.0), 1)
            for name in sorted(living)
            if newest.get(name, 0.0) < since
        }


Strike = Callable[[Site, random.Random], AbstractContextManager[str]]
"""Entering it does the fault and gives what was done; leaving it lets the part return."""
