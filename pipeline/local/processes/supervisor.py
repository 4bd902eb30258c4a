"""Keeps the processes of one machine running: started in order, restarted, stopped in reverse."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from connectors.process.backoff import Backoff
from pipeline.local.directory import DirectoryInUse
from pipeline.local.processes.child_process import ProcessFailed
from pipeline.local.processes.ports import KeptPorts

LONGEST_PAUSE_SECONDS = 30.0
PAUSES = Backoff(first=0.5, longest=LONGEST_PAUSE_SECONDS)
STABLE_SECONDS = 60.0
"""A process that ran for so long begins with the first pause again."""


class Service(Protocol):
    """Something that runs in a process of its own; `EmbeddedBroker` and `EmbeddedStore` are such."""

    @property
    def running(self) -> bool: ...

    def start(self) -> None:
        """Return when it is ready; raises ProcessFailed and DirectoryInUse."""

    def stop(self) -> None:
        """End it in bounded time; harmless when it does not run."""


@dataclass
class _Watched:
    name: str
    service: Service
    started_at: float
    restart_at: float | None = None
    deaths: int = 0
    """Without a stable run in between."""
    restarts: int = 0


class Supervisor:
    """One thread starts services, calls `check` now and then, and `stop` in the end."""

    def __init__(
        self,
        tell: Callable[[str], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`tell` gets a line for every death and restart."""
        self._tell = tell
        self._clock = clock
        self._watched: list[_Watched] = []
        self.ports = KeptPorts()
        """Ports for services; each keeps its port until the stop, also while it is restarted."""

    @property
    def restarts(self) -> dict[str, int]:
        """How often each service was restarted."""
        return {watched.name: watched.restarts for watched in self._watched}

    def start(self, name: str, service: Service) -> None:
        """Start a service and watch it from now on; raises what its start raises."""
        service.start()
        self._watched.append(_Watched(name, service, self._clock()))

    def check(self) -> None:
        """Restart what has died, each time after a longer pause."""
        for watched in self._watched:
            now = self._clock()
            if watched.restart_at is None:
                if not watched.service.running:
                    self._plan_restart(watched, now, "died")
            elif now >= watched.restart_at:
                self._restart(watched)

    def stop(self) -> None:
        """Stop everything, the last started first."""
        while self._watched:
            self._watched.pop().service.stop()
        self.ports.release()

    def _plan_restart(self, watched: _Watched, now: float, why: str) -> None:
        if now - watched.started_at >= STABLE_SECONDS:
            watched.deaths = 0
        watched.deaths += 1
        pause = PAUSES.pause(watched.deaths)
        watched.restart_at = now + pause
        self._tell(f"{watched.name} {why}; restarting it in {pause:g} s")

    def _restart(self, watched: _Watched) -> None:
        watched.service.stop()
        watched.restarts += 1
        watched.started_at = self._clock()
        try:
            watched.service.start()
        except (ProcessFailed, DirectoryInUse) as error:
            self._plan_restart(watched, self._clock(), f"did not start ({str(error).partition(chr(10))[0]})")
        else:
            watched.restart_at = None
            self._tell(f"{watched.name} is running again")
