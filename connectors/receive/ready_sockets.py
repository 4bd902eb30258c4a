"""Which of many ZMQ sockets can be read, found without looking at the others."""

from __future__ import annotations

import selectors

import zmq

Socket = zmq.Socket[bytes]


class ReadySockets:
    """Waits on the sockets' file descriptors.

    ZMQ signals a descriptor when a socket that was empty no longer is, and any call on the socket clears the
    signal. So a socket counts as ready from its signal until `served` is given that a read emptied it.
    """

    def __init__(self) -> None:
        self._selector = selectors.DefaultSelector()
        self._ready: dict[Socket, None] = {}

    def add(self, socket: Socket) -> None:
        """Watch a socket; it counts as ready at first, as signals may have come before."""
        self._selector.register(int(socket.getsockopt(zmq.FD)), selectors.EVENT_READ, socket)
        self._ready[socket] = None

    def remove(self, socket: Socket) -> None:
        """Forget a socket, which must still be open."""
        self._selector.unregister(int(socket.getsockopt(zmq.FD)))
        self._ready.pop(socket, None)

    def close(self) -> None:
        self._selector.close()

    def wait(self, seconds: float) -> list[Socket]:
        """Return the ready sockets, those that have waited longest first; wait while there are none."""
        for key, _ in self._selector.select(0 if self._ready else seconds):
            self._ready.setdefault(key.data)
        return list(self._ready)

    def served(self, socket: Socket, *, emptied: bool) -> None:
        """Note a read: an emptied socket now waits for its next signal, any other for its next turn."""
        self._ready.pop(socket, None)
        if not emptied:
            self._ready[socket] = None
