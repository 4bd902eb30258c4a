"""One broker and one store for all processes of a parallel run, and what they make there only once.

The process that hands files out starts each server when the first of the others asks for it, and kills it at
the end. Each of them has its own topics, groups and databases there, as in a run of one process.
"""

from __future__ import annotations

import fcntl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from itertools import count
from multiprocessing.connection import Client, Connection, Listener
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

from xdist.workermanage import WorkerController

from pipeline.local.broker.embedded import EmbeddedBroker
from pipeline.local.clickhouse.embedded import EmbeddedStore
from pipeline.local.processes.ports import KeptPorts

Server = EmbeddedBroker | EmbeddedStore
KINDS: dict[str, type[Server]] = {"broker": EmbeddedBroker, "store": EmbeddedStore}
INPUT = "servers"
"""Under this name the processes of a run learn where the files of the servers are."""
ASKED = "asked"


class Servers:
    """A plugin of the process that hands files out."""

    def __init__(self) -> None:
        self._kept = TemporaryDirectory(prefix="kvlens-servers-")
        self._directory = Path(self._kept.name)
        self._ports = KeptPorts()
        self._running: dict[str, Server] = {}
        self._lock = threading.Lock()
        self._listener = Listener(str(self._directory / ASKED), backlog=64)
        threading.Thread(target=self._listen, daemon=True).start()

    def pytest_configure_node(self, node: WorkerController) -> None:
        node.workerinput[INPUT] = str(self._directory)

    def pytest_unconfigure(self) -> None:
        with self._lock:
            for server in self._running.values():
                server.kill()
            self._ports.release()
            self._listener.close()
            self._kept.cleanup()

    def _listen(self) -> None:
        with suppress(OSError):  # closed
            while True:
                threading.Thread(target=self._answer, args=[self._listener.accept()], daemon=True).start()

    def _answer(self, asking: Connection) -> None:
        with asking:
            try:
                asking.send(self._port(asking.recv()))
            except Exception as error:
                asking.send(str(error))

    def _port(self, kind: str) -> int:
        with self._lock:
            if kind not in self._running:
                server = KINDS[kind](self._directory / kind, self._ports.any())
                server.start()
                self._running[kind] = server
            return self._running[kind].port


class Lent(NamedTuple):
    """What was made, and whether somebody has used it before."""

    made: str
    used: bool


class Shared:
    """What the processes of a run share, seen from one of them."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    @property
    def of_run(self) -> bool:
        """Whether this is one of several processes of a run."""
        return (self.directory / ASKED).exists()

    def running(self, kind: str) -> Server | None:
        """Return the broker or the store of the run, not this process's to stop; None outside one."""
        if not self.of_run:
            return None
        with Client(str(self.directory / ASKED)) as asking:
            asking.send(kind)
            port = asking.recv()
        if not isinstance(port, int):
            raise RuntimeError(port)
        return KINDS[kind](self.directory / kind, port)

    def once(self, name: str, make: Callable[[], str]) -> str:
        """Return what the first process that asked made; others wait for it."""
        path = self.directory / name
        with path.open("a") as held:
            fcntl.flock(held, fcntl.LOCK_EX)
            if not (made := path.read_text()):
                path.write_text(made := make())
        return made

    @contextmanager
    def lent(self, name: str, make: Callable[[], str]) -> Iterator[Lent]:
        """Give one of several that are alike to nobody else meanwhile; make another where none is free."""
        for number in count():
            path = self.directory / f"{name}-{number}"
            with path.open("a") as held:
                try:
                    fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError:
                    continue
                if not (made := path.read_text()):
                    path.write_text(new := make())
                    yield Lent(new, used=False)
                else:
                    yield Lent(made, used=True)
                return
