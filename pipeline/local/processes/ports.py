"""TCP ports on loopback for processes about to start, reserved against other starters on this machine.

A process binds its port seconds after the starter found it free. Two starters could find the same port free,
and the processes of one would reach the broker of the other. So a starter that chooses a port also binds the
UDP port of that number: the kernel gives it to one process only and frees it when that ends, however it ends.
"""

from __future__ import annotations

import random
import socket
import time
from contextlib import ExitStack

from pipeline.local.processes.child_process import ProcessFailed

LOOPBACK = "127.0.0.1"
# Below the range that systems use for outgoing connections: such a connection on the port of a process would
# keep it from starting again.
_FIRST, _LAST = 20_000, 32_000
_TRIES = 500
_RELEASE_SECONDS = 1.0
"""Within this the port of a killed process is free again."""
_POLL_SECONDS = 0.02


class PortInUse(ProcessFailed):
    """Something else listens on the port that a process was given."""

    def __init__(self, name: str, port: int) -> None:
        super().__init__(
            name, f"port {port} on {LOOPBACK} is in use", "stop what listens there or choose another port"
        )
        self.port = port


class KeptPorts:
    """Ports that nobody listened on when they were chosen, and that no other KeptPorts chooses."""

    def __init__(self) -> None:
        self._held = ExitStack()

    def preferred(self, port: int) -> int:
        """Return that port, or another one if it is taken."""
        return port if self._keep(port, 1) else self.any()

    def any(self, count: int = 1) -> int:
        """Return a port, the first of `count` in a row; raises ProcessFailed if none can be found."""
        for _ in range(_TRIES):
            first = random.randint(_FIRST, _LAST - count)
            if self._keep(first, count):
                return first
        raise ProcessFailed(
            "ports",
            f"no {count} free in a row between {_FIRST} and {_LAST} on {LOOPBACK} in {_TRIES} tries",
            "stop what holds them",
        )

    def release(self) -> None:
        """Leave the ports to others; the processes on them have ended."""
        self._held.close()

    def _keep(self, first: int, count: int) -> bool:
        ports = range(first, first + count)
        with ExitStack() as held:
            try:
                for port in ports:
                    held.enter_context(socket.socket(type=socket.SOCK_DGRAM)).bind((LOOPBACK, port))
            except OSError:
                return False
            if not all(map(_is_free, ports)):
                return False
            self._held.enter_context(held.pop_all())
        return True


def require_free_port(name: str, port: int, *, patience: float = _RELEASE_SECONDS) -> None:
    """Wait until nobody listens on the port; raises PortInUse after `patience` seconds.

    Called before a start, which would otherwise fail with a page of text. Linux closes a killed process's
    descriptors one by one, so its starter may know of its end before its port is free.
    """
    deadline = time.monotonic() + patience
    while not _is_free(port):
        if time.monotonic() >= deadline:
            raise PortInUse(name, port)
        time.sleep(_POLL_SECONDS)


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((LOOPBACK, port))
        except OSError:
            return False
    return True


def free_port() -> int:
    """Return a port that nobody listens on now."""
    ports = KeptPorts()
    try:
        return ports.any()
    finally:
        ports.release()
