"""A process that is started again whenever it ends, as a supervisor does."""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable
from typing import cast

from connectors.process.stopping import Stop
from schemas.settings import Settings
from tests.simulation.loop import Process
from tests.simulation.simulation import Simulation

LONGEST_STOP = 9.0
"""Seconds from when a process is asked to stop until its end."""
LONGEST_AWAY = 7.0
"""Seconds from the end of a process to its next start."""

Main = Callable[[Settings, Stop], Awaitable[None]]


class Supervised:
    """A process that is started again whenever it ends."""

    def __init__(self, simulation: Simulation, name: str, main: Main) -> None:
        self._simulation = simulation
        self._name = name
        self._main = main
        self._rng = random.Random(f"{name} {simulation.seed}")
        self._clock_ahead = 0.0
        self._wanted = False
        self.starts = 0
        self.process: Process | None = None
        self.stop = Stop()
        self.failures: list[BaseException] = []

    @property
    def runs(self) -> bool:
        """Whether there is a process now."""
        return self.process is not None and self.process.alive

    @property
    def away(self) -> bool:
        """Whether it ended, or is about to, and will be started again."""
        return self._wanted and (not self.runs or self.stop.is_set())

    def start(self) -> None:
        """Run it from now on."""
        self._wanted = True
        self._begin()

    def end(self) -> None:
        """Let it stop, and start it no more."""
        self._wanted = False
        self.ask_to_stop()

    def ask_to_stop(self) -> None:
        """Send it SIGTERM."""
        process = self.process
        if process is not None and process.alive:
            process.call_soon(self.stop.set)

    def step_clock(self, seconds: float) -> None:
        """Set the clock of its machine."""
        self._clock_ahead += seconds
        if self.process is not None:
            self.process.clock_ahead = self._clock_ahead

    def heal(self) -> None:
        """Let its clock be right, and nothing happen to it any more."""
        self.step_clock(-self._clock_ahead)
        if self.process is not None:
            self.process.thaw()

    def _begin(self) -> None:
        if not self._wanted or self.runs:
            return
        self.starts += 1
        process = self.process = Process(self._simulation, f"{self._name}.{self.starts}")
        process.clock_ahead = self._clock_ahead
        process.on_end = self._ended
        self.stop = Stop()
        stop = self.stop

        async def main() -> None:
            try:
                await self._main(self._simulation.settings, stop)
            except Exception as error:
                process.kill(error)
            else:
                process.kill()

        process.call_soon(lambda: setattr(process, "main", process.create_task(main())))

    def _ended(self) -> None:
        process = cast(Process, self.process)
        if process.failure is not None:
            self.failures.append(process.failure)
        world = self._simulation
        away = 0.2 + self._rng.random() * ((LONGEST_AWAY - 0.2) if self._rng.random() < 0.2 else 2.5)
        world.at(world.now + away, self._begin)
