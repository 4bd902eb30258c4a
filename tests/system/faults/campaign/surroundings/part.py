"""One part of an installation: a process that is started again whenever it ends, unless it is held back."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from connectors.process.errors import OperatorError
from pipeline.local.processes.child_process import ChildProcess

_LOOK_SECONDS = 0.1
_AGAIN_SECONDS = 0.5
_STOP_SECONDS = 40.0


class Service(Protocol):
    """A process of `pipeline/local`."""

    @property
    def running(self) -> bool: ...
    @property
    def log(self) -> Path: ...
    def start(self) -> None: ...
    def stop(self) -> None: ...
    def kill(self) -> None: ...
    def signal(self, number: int) -> None: ...


class Command:
    """A Python command behind a lifeline; it counts as started at once."""

    def __init__(self, name: str, arguments: Sequence[str], directory: Path) -> None:
        """`arguments`: for the interpreter. The log is `<directory>/<name>.log`."""
        self.arguments = arguments
        self._process = ChildProcess(name, directory / name, directory / f"{name}.log")

    @property
    def running(self) -> bool:
        return self._process.running

    @property
    def log(self) -> Path:
        return self._process.log

    def start(self) -> None:
        self._process.claim()
        self._process.spawn([sys.executable, *self.arguments])

    def stop(self) -> None:
        self._process.stop(_STOP_SECONDS)

    def kill(self) -> None:
        self._process.kill()

    def signal(self, number: int) -> None:
        self._process.signal(number)


class Part:
    """A service and the thread that keeps it running, as a supervisor without pauses would."""

    def __init__(self, name: str, service: Service) -> None:
        self.name = name
        self.service = service
        self.starts = 0
        self.failed_starts: list[str] = []
        """Why some starts failed; each was tried again."""
        self._wanted = False
        self._over = threading.Event()
        self._lock = threading.RLock()
        self._thread = threading.Thread(target=self._keep, name=f"keeper of {name}", daemon=True)
        self._thread.start()

    @property
    def wanted(self) -> bool:
        return self._wanted

    def begin(self) -> None:
        """Start it now, and again whenever it ends. Raises what its start raises."""
        with self._lock:
            self.service.start()
            self.starts += 1
            self._wanted = True

    def hold(self) -> None:
        """If it ends, let it stay away until it is released."""
        self._wanted = False

    def release(self) -> None:
        """Let it be started again."""
        self._wanted = True

    def kill(self) -> None:
        """SIGKILL; it starts again at once unless it is held back."""
        with self._lock:
            self.service.kill()

    def kill_and_hold(self) -> None:
        """SIGKILL; it stays away until it is released."""
        self._wanted = False
        self.kill()

    def stop_and_hold(self) -> None:
        """Let it end in order; it stays away until it is released."""
        self._wanted = False
        with self._lock:
            self.service.stop()

    def signal(self, number: int) -> None:
        with self._lock:
            self.service.signal(number)

    def close(self) -> None:
        """Kill it for good."""
        self._wanted = False
        self._over.set()
        self._thread.join()
        self.service.kill()

    def mark(self) -> int:
        """Return how long its log is now."""
        return self.service.log.stat().st_size if self.service.log.exists() else 0

    def said(self, since: int = 0) -> str:
        """Return its log from a mark on."""
        if not self.service.log.exists():
            return ""
        with self.service.log.open("rb") as log:
            log.seek(since)
            return log.read().decode(errors="replace")

    def wait_said(self, words: str, since: int, seconds: float = 60.0) -> bool:
        """Return when it has said so since the mark; False when it has not in time."""
        deadline = time.monotonic() + seconds
        while words not in self.said(since):
            if time.monotonic() > deadline:
                return False
            time.sleep(0.01)
        return True

    def _keep(self) -> None:
        while not self._over.wait(_LOOK_SECONDS):
            with self._lock:
                if not self._wanted or self.service.running:
                    continue
                try:
                    self.service.kill()  # lets go of its directory
                    self.service.start()
                    self.starts += 1
                    continue
                except OperatorError as error:
                    self.failed_starts.append(str(error).partition("\n")[0])
            self._over.wait(_AGAIN_SECONDS)
