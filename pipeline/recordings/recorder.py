"""Reads the sockets of engines and passes on every message as it came."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Sequence

import zmq

from connectors.process.dialling import Dialling
from connectors.receive.monitors import Connections
from connectors.receive.sub_sockets import new_sub_socket
from pipeline.recordings.format import Frame

RECEIVE_HWM = 100_000
"""Messages queued per engine before the engine drops further ones."""
_TURN = 1000
"""Messages taken from one socket before the next has its turn."""
_IDLE_MS = 200
_DIAL_SECONDS = 0.5
"""Between two checks of which sockets are connected."""


class Recorder:
    """One SUB socket per endpoint, read by the thread that calls `run`; the sockets' queues bound memory."""

    def __init__(self, endpoints: Sequence[str], topics: Sequence[str]) -> None:
        """Endpoint i becomes source i, with topics[i] as its subscription; raises OSError if it is bad."""
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self._sockets: dict[zmq.Socket[bytes], int] = {}
        self._connections: Connections[int] = Connections(time.time)
        self._dialling: dict[zmq.Socket[bytes], Dialling] = {}
        self._stopped = False
        for number, (endpoint, topic) in enumerate(zip(endpoints, topics, strict=True)):
            socket = new_sub_socket(self._context, topic, RECEIVE_HWM)
            self._sockets[socket] = number
            try:
                self._connections.watch(socket, number)
                self._dialling[socket] = Dialling(socket, endpoint, time.monotonic())
            except zmq.ZMQError as error:
                self.close()
                raise OSError(
                    error.errno, f"cannot connect to {endpoint}: {zmq.strerror(error.errno or 0)}"
                ) from error

    def run(
        self,
        write: Callable[[Frame], None],
        turned: Callable[[], None],
        *,
        batches: int | None = None,
        seconds: float | None = None,
    ) -> None:
        """Call `write` for each message until `batches` came, `seconds` passed, or `stop` was called.

        `turned` is called after each round over the sockets, at least five times a second.
        """
        deadline = None if seconds is None else time.monotonic() + seconds
        poller = zmq.Poller()
        for socket in self._sockets:
            poller.register(socket, zmq.POLLIN)
        left = batches
        dial_at = 0.0
        while not self._stopped and left != 0 and (deadline is None or time.monotonic() < deadline):
            found = poller.poll(_IDLE_MS)
            if time.monotonic() >= dial_at:
                self._dial({socket for socket, _ in found})
                dial_at = time.monotonic() + _DIAL_SECONDS
            for socket, _ in found:
                taken = self._drain(socket, write, _TURN if left is None else min(left, _TURN))
                left = None if left is None else left - taken
                if left == 0:
                    break
            turned()

    def stop(self) -> None:
        """Make `run` return soon; may be called by a signal handler."""
        self._stopped = True

    def close(self) -> None:
        for socket in self._sockets:
            self._connections.forget(socket)
            socket.close()
        self._context.term()

    def _dial(self, unread: Collection[zmq.Socket[bytes]]) -> None:
        """Look for engines that are not connected under other addresses of their names."""
        self._connections.refresh()
        now = time.monotonic()
        for socket in self._sockets.keys() - set(unread):
            self._dialling[socket].look(self._connections.since(self._sockets[socket]) is not None, now)

    def _drain(self, socket: zmq.Socket[bytes], write: Callable[[Frame], None], limit: int) -> int:
        source = self._sockets[socket]
        for taken in range(limit):
            try:
                parts = socket.recv_multipart(zmq.NOBLOCK)
            except zmq.Again:
                return taken
            write(Frame(source, time.time(), tuple(parts)))
        return limit
