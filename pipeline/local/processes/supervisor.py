"""Keeps the processes of one machine running: started in order, restarted, stopped within seconds."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from connectors.process.backoff import Backoff
from connectors.process.errors import OperatorError
from pipeline.local.processes.launched import Launched
from pipeline.local.processes.ports import KeptPorts

LONGEST_PAUSE_SECONDS = 5.0
PAUSES = Backoff(first=0.5, longest=LONGEST_PAUSE_SECONDS)
STABLE_SECONDS = 30.0
"""A process that ran for this long is restarted at once: the cause of its end came from outside."""
STOP_SECONDS = 2.4
"""From the stop to the end of the last process, whatever hangs."""
STORAGE_STOP_SECONDS = 0.9
"""Part of it that is reserved for what the others write to."""


@dataclass
class _Watched:
    name: str
    service: Launched
    started_at: float
    storage: bool
    restart_at: float | None = None
    starting: bool = False
    """Restarted, and not ready yet."""
    deaths: int = 0
    """In a row, each soon after the start."""
    restarts: int = 0


class Supervisor:
    """For one thread, which launches services, calls `check` now and then, and `stop` at the end."""

    def __init__(self, tell: Callable[[str], None], clock: Callable[[], float] = time.monotonic) -> None:
        """`tell` is called with a line for every death and restart."""
        self._tell = tell
        self._clock = clock
        self._watched: list[_Watched] = []
        self.ports = KeptPorts()
        """Ports for services; each keeps its port until the stop, even while it is restarted."""

    @property
    def restarts(self) -> dict[str, int]:
        """How often each service was restarted."""
        return {watched.name: watched.restarts for watched in self._watched}

    def launch(self, name: str, service: Launched, *, storage: bool = False) -> None:
        """Launch a service and watch it from now on; raises what its launch raises.

        `storage`: others write to it until they end, so it is stopped last.
        """
        service.launch()
        self._watched.append(_Watched(name, service, self._clock(), storage))

    def check(self) -> None:
        """Restart what has died, one part after the other, without waiting until it is ready.

        Each restart may take some seconds: it waits for what is left of the part, its directory and its port.
        """
        for watched in self._watched:
            now = self._clock()
            if watched.restart_at is not None:
                if now >= watched.restart_at:
                    self._restart(watched)
            elif not watched.service.running:
                self._plan_restart(watched, now, "ended while starting" if watched.starting else "died")
            elif watched.starting and watched.service.ready:
                watched.starting = False
                self._tell(f"{watched.name} is running again")

    def stop(self) -> None:
        """Stop everything in parallel, then what the others write to."""
        deadline = self._clock() + STOP_SECONDS
        watched, self._watched = self._watched, []
        _stop_all((one for one in watched if not one.storage), STOP_SECONDS - STORAGE_STOP_SECONDS)
        left = max(STORAGE_STOP_SECONDS, deadline - self._clock())
        _stop_all((one for one in watched if one.storage), left)
        self.ports.release()

    def _plan_restart(self, watched: _Watched, now: float, why: str) -> None:
        stable = now - watched.started_at >= STABLE_SECONDS
        watched.deaths = 0 if stable else watched.deaths + 1
        pause = PAUSES.pause(watched.deaths)
        watched.restart_at = now + pause
        self._tell(f"{watched.name} {why}; restarting it {f'in {pause:g} s' if pause else 'at once'}")

    def _restart(self, watched: _Watched) -> None:
        watched.service.stop(STORAGE_STOP_SECONDS)
        watched.restarts += 1
        watched.started_at = self._clock()
        watched.restart_at = None
        watched.starting = True
        try:
            watched.service.launch()
        except (OperatorError, OSError) as error:  # a full disk, say, as may have ended it
            self._plan_restart(watched, self._clock(), f"did not start ({str(error).partition(chr(10))[0]})")


def _stop_all(watched: Iterable[_Watched], seconds: float) -> None:
    stopping = [
        # Daemons: a second signal ends the process, and its children with it.
        threading.Thread(target=one.service.stop, args=(seconds,), daemon=True)
        for one in watched
    ]
    for thread in stopping:
        thread.start()
    for thread in stopping:
        thread.join()
