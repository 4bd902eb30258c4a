"""A kvlens command as a supervised child process."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from http.client import HTTPException
from pathlib import Path
from urllib.request import ProxyHandler, build_opener

from pipeline.local.processes.child_process import ChildProcess
from pipeline.local.processes.launched import Launched

# A proxy from the environment must not come between a process and its own loopback.
open_directly = build_opener(ProxyHandler({})).open


class CommandProcess(Launched):
    """Runs `kvlens ARGUMENTS`; its log file has the name of the process."""

    def __init__(
        self,
        name: str,
        arguments: Sequence[str],
        directory: Path,
        logs: Path,
        *,
        environment: Mapping[str, str],
        ready: Callable[[], bool],
        start_seconds: float,
    ) -> None:
        """`directory` is for the process alone."""
        self._command = [sys.executable, "-m", "pipeline.cli.main", *arguments]
        self._environment = environment
        self._ready = ready
        process = ChildProcess(name, directory, logs / f"{name}.log")
        super().__init__(process, start_seconds=start_seconds)

    @property
    def ready(self) -> bool:
        return self._ready()

    def _spawn(self) -> None:
        self._process.spawn(self._command, self._environment)


def page_answers(url: str) -> bool:
    """Return whether a GET of the page gives 200."""
    try:
        with open_directly(url, timeout=2) as answer:
            return bool(answer.status == 200)
    except (OSError, HTTPException):  # nobody, or somebody else, answers there
        return False
