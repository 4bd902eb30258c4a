"""Commands of kvlens that run for long, as forks of a process that has loaded what is compiled.

Loading takes seconds of each command, and one process of a run does it for all. A child has arguments,
environment, directory and output of its own and takes signals as any other; only /proc shows the command line
of the first one. How a command begins is for the tests of `kvlens up` and of stopping.
"""

from __future__ import annotations

import gc
import os
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from importlib import import_module
from multiprocessing.connection import Client, Connection
from pathlib import Path

import msgspec

from tests.support.processes import Started, environment
from tests.support.suite.run import RUN_BY
from tests.support.suite.servers import Shared

MODULES = (
    "pipeline.cli.commands.work",
    "pipeline.worker.lifecycle",
    "pipeline.cli.commands.connect",
    "connectors.connector",
    "pipeline.cli.commands.index",
    "pipeline.index.service",
    "uvloop",
)
_KEPT: list[subprocess.Popen[bytes]] = []
"""What nobody waits for: it ends with the run."""


class Asked(msgspec.Struct):
    """A command line, and what its process has."""

    arguments: list[str]
    cwd: str
    environment: dict[str, str]
    log: str


class Forked(subprocess.Popen[bytes]):
    """A child of the other process, which says its id at first, and how it ended at last."""

    def __init__(self, server: str, asked: Asked) -> None:
        self._told = Client(server)
        self.returncode = None
        self._told.send_bytes(msgspec.json.encode(asked))
        self.pid: int = self._told.recv()

    def __del__(self) -> None:
        self._told.close()

    def poll(self) -> int | None:
        with suppress(subprocess.TimeoutExpired):
            self.wait(0.0)
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        if self.returncode is None:
            if not self._told.poll(timeout):
                raise subprocess.TimeoutExpired("kvlens", timeout or 0.0)
            self.returncode = self._told.recv()
        return self.returncode

    def send_signal(self, sig: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, sig)


def preloaded(shared: Shared, arguments: Sequence[str], log: Path, *, cwd: Path, **more: str) -> Started:
    """Start `kvlens` with arguments, as `started` does."""
    log.touch()
    asked = Asked([*arguments], str(cwd), environment(more), str(log))
    return Started(Forked(shared.once("preloaded", lambda: begun(shared)), asked), log)


def begun(shared: Shared) -> str:
    """Start the process that forks; return where it is asked when it has loaded everything."""
    path = shared.directory / "preloaded-socket"
    # It lives as long as the run, not only as long as who asks first.
    run = os.getppid() if shared.of_run else os.getpid()
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.support.preloaded", str(path), str(run)],
        # numpy would start a thread, which no fork has.
        env=environment({RUN_BY: str(run), "OPENBLAS_NUM_THREADS": "1"}),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
    )
    _KEPT.append(process)
    assert process.stdout is not None
    assert process.stdout.readline(), "it has ended"
    return str(path)


def load() -> None:
    from tests.support.suite.compiled import PARTS

    for part in PARTS:
        part()
    for module in MODULES:
        import_module(module)
    gc.collect()
    gc.freeze()
    threads = os.listdir("/proc/self/task")
    assert len(threads) == 1, f"a fork would not have all of {threads}"


def serve(path: str, run: int) -> Asked | None:
    """Fork for whoever asks, while a process lives; return what was asked in a child."""
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(path)
        listening.listen(64)
        sys.stdout.write("ready\n")
        sys.stdout.flush()
        # Who waits for a child needs nobody who waits for it.
        signal.signal(signal.SIGCHLD, signal.SIG_IGN)
        lives = os.pidfd_open(run)
        while lives not in select.select([listening, lives], [], [])[0]:
            asking, _ = listening.accept()
            if not os.fork():
                signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                return waited_for(Connection(asking.detach()))
            asking.close()
    return None


def waited_for(asking: Connection) -> Asked:
    """Fork once more and return in the child, with what it has; tell how it ends. It ends with who asked."""
    asked = msgspec.json.decode(asking.recv_bytes(), type=Asked)
    child = os.fork()
    if child:
        with suppress(OSError):
            asking.send(child)
        ended = os.pidfd_open(child)
        if ended not in select.select([asking, ended], [], [])[0]:
            os.kill(child, signal.SIGKILL)
        _, status = os.waitpid(child, 0)
        with suppress(OSError):
            asking.send(os.waitstatus_to_exitcode(status))
        os._exit(0)
    asking.close()
    os.environ.clear()
    os.environ.update(asked.environment)
    os.chdir(asked.cwd)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    for number in (1, 2):
        os.dup2(os.open(asked.log, os.O_WRONLY | os.O_APPEND), number)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    return asked


if __name__ == "__main__":
    load()
    wanted = serve(sys.argv[1], int(sys.argv[2]))
    if wanted is not None:
        from pipeline.cli import failures
        from pipeline.cli.main import kvlens

        failures.run(kvlens, wanted.arguments)
