"""One child process: started, watched until it is ready, stopped in bounded time."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from pathlib import Path

from pipeline.errors import PipelineError
from pipeline.local.directory import DIRECTORY_RIGHTS, FILE_RIGHTS, UMASK, DirectoryLock
from pipeline.local.processes.progress import Progress, processor_seconds

_LOG_ROTATE_BYTES = 16 << 20
_LOG_TAIL_LINES = 15
_POLL_SECONDS = 0.05
_LOOK_SECONDS = 5.0
"""Between two looks at the processor time of a starting process."""
_GONE_SECONDS = 5.0
_CLAIM_SECONDS = 2.0


def behind_lifeline(command: Sequence[str]) -> list[str]:
    """Return a command that ends when the process at the other end of its standard input ends."""
    return [sys.executable, "-m", "pipeline.local.processes.lifeline", *command]


def lifeline_environment(more: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return this process's environment, with `more`, and with a path on which a lifeline finds its code."""
    root = Path(__file__).resolve().parents[3]
    path = os.pathsep.join(filter(None, [str(root), os.environ.get("PYTHONPATH", "")]))
    return {**os.environ, **(more or {}), "PYTHONPATH": path}


class ProcessFailed(PipelineError):
    """A child process did not start, or died; `log` is its log file and `tail` its last lines."""

    name: str
    reason: str
    advice: str
    log: Path | None = None
    tail: str = field(default="", init=False)

    def __post_init__(self) -> None:
        self.tail = _tail(self.log) if self.log is not None else ""

    def __str__(self) -> str:
        text = f"{self.name}: {self.reason}; {self.advice}"
        if self.tail:
            text += f"\n--- last lines of {self.log}\n{self.tail}"
        return text


class ChildProcess:
    """A process in a group of its own behind a lifeline, so that it ends when its starter does."""

    def __init__(self, name: str, directory: Path, log: Path) -> None:
        """`directory` is for this process alone: its lock is held until the last of the group is gone."""
        self.name = name
        self.log = log
        self._lock = DirectoryLock(directory)
        self._process: subprocess.Popen[bytes] | None = None
        self._end: int | None = None

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def claim(self) -> None:
        """Own the directory; raises DirectoryInUse.

        Waits a moment: the children of a starter that was killed end a little after it.
        """
        self._lock.acquire(patience=_CLAIM_SECONDS)

    def spawn(self, command: Sequence[str], environment: Mapping[str, str] | None = None) -> None:
        """Start the command; call `claim` first."""
        self.log.parent.mkdir(DIRECTORY_RIGHTS, parents=True, exist_ok=True)
        if self.log.exists() and self.log.stat().st_size > _LOG_ROTATE_BYTES:
            self.log.replace(self.log.with_suffix(self.log.suffix + ".1"))
        # Nobody writes to this pipe: its read end shows when the last process that inherited the write end is
        # gone, which waiting for the lifeline alone does not. Ports and file locks are free a moment later.
        self._end, held = os.pipe()
        try:
            with open(self.log, "ab", opener=_private) as output:
                self._process = subprocess.Popen(
                    behind_lifeline(command),
                    stdin=subprocess.PIPE,
                    stdout=output,
                    stderr=output,
                    # Ctrl-C in a terminal reaches the starter only, which stops its children in order.
                    start_new_session=True,
                    # What it writes is for its owner alone, whatever the starter's umask is.
                    umask=UMASK,
                    pass_fds=[held, self._lock.descriptor],
                    env=lifeline_environment(environment),
                )
        finally:
            os.close(held)

    def wait_ready(self, ready: Callable[[], bool], seconds: float, advice: str) -> None:
        """Poll `ready` until it holds; raises ProcessFailed when the process ends before that.

        Also raises it when the process has done no work for `seconds`: one that still compiles on a busy
        machine is waited for.
        """
        began = looked = time.monotonic()
        progress = Progress(seconds, began)
        while not ready() or not self.running:
            code = None if self._process is None else self._process.poll()
            if code is not None:
                self.kill()
                raise ProcessFailed(self.name, f"ended with code {code} while starting", advice, self.log)
            if (now := time.monotonic()) - looked >= min(_LOOK_SECONDS, seconds / 4):
                looked = now
                if progress.over(now, self._worked()):
                    self.kill()
                    reason = f"not ready after {now - began:.0f} s, and idle for the last {seconds:.0f} s"
                    raise ProcessFailed(self.name, reason, advice, self.log)
            time.sleep(_POLL_SECONDS)

    def _worked(self) -> float | None:
        return None if self._process is None else processor_seconds(self._process.pid)

    def signal(self, number: int) -> None:
        """Send a signal to the whole group (SIGSTOP and SIGCONT in tests)."""
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, number)

    def stop(self, seconds: float) -> None:
        """Ask to end, wait, then kill."""
        if self._process is not None:
            self._process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(seconds)
        self.kill()

    def kill(self) -> None:
        """End at once, as a crash would."""
        process, self._process = self._process, None
        if process is not None:
            self._end_group(process)
        end, self._end = self._end, None
        if end is not None:
            # Unlike select, poll takes descriptors of any number.
            gone = select.poll()
            gone.register(end, select.POLLIN)
            gone.poll(_GONE_SECONDS * 1000)
            os.close(end)
        self._lock.release()

    def _end_group(self, process: subprocess.Popen[bytes]) -> None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        if process.stdin is not None:
            process.stdin.close()


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, FILE_RIGHTS)


def _tail(log: Path) -> str:
    try:
        with log.open("rb") as lines:
            lines.seek(max(0, log.stat().st_size - 16384))
            return "\n".join(lines.read().decode(errors="replace").splitlines()[-_LOG_TAIL_LINES:])
    except OSError:
        return ""
