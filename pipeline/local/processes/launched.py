"""A part of a local installation that runs in a child process: how each starts, becomes ready and ends."""

from __future__ import annotations

from abc import ABC, abstractmethod
from pathlib import Path

from pipeline.local.processes.child_process import ChildProcess

STOP_SECONDS = 15.0
"""Time to end cleanly, unless `stop` is given another."""


class Launched(ABC):
    """Owns the process; a subclass knows what to run, and how to see that it is ready."""

    def __init__(
        self,
        process: ChildProcess,
        *,
        start_seconds: float,
        stop_seconds: float = STOP_SECONDS,
        advice: str = "see its log",
    ) -> None:
        """A start ends after `start_seconds` without work (`progress.py`); `advice` says what to do then."""
        self._process = process
        self._start_seconds = start_seconds
        self._stop_seconds = stop_seconds
        self._advice = advice

    @property
    def running(self) -> bool:
        return self._process.running

    @property
    @abstractmethod
    def ready(self) -> bool:
        """Whether it answers; asks the process, and waits a few seconds at most."""

    @property
    def log(self) -> Path:
        return self._process.log

    def start(self) -> None:
        """Block until it is ready; raises what `launch` and `wait_ready` do."""
        self.launch()
        self.wait_ready()

    def launch(self) -> None:
        """Start it without waiting until it is ready; raises DirectoryInUse, PortInUse, ProcessFailed."""
        # First: Kafka would notice a second owner only after it has begun to replay the metadata log.
        self._process.claim()
        try:
            self._spawn()
        except BaseException:
            self._process.kill()
            raise

    @abstractmethod
    def _spawn(self) -> None:
        """Run it in the claimed directory."""

    def wait_ready(self) -> None:
        """Block until it is ready; raises ProcessFailed when it ends before, or takes too long."""
        try:
            self._process.wait_ready(lambda: self.ready, self._start_seconds, self._advice)
        except BaseException:
            self._process.kill()
            raise

    def stop(self, seconds: float | None = None) -> None:
        """Let it end cleanly within that time, or else kill it; harmless when it does not run."""
        self._process.stop(self._stop_seconds if seconds is None else seconds)

    def kill(self) -> None:
        """Send SIGKILL, as a crash would end it."""
        self._process.kill()

    def signal(self, number: int) -> None:
        """Send a signal to the process, such as SIGSTOP."""
        self._process.signal(number)
