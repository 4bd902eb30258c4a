"""Receive the event streams of all sources in one thread and hand them over in bundles."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

import zmq

from connectors.receive.hand_over import HandOver
from connectors.receive.monitors import Connections
from connectors.receive.received import Key
from connectors.receive.socket_thread import REST_SECONDS, Add, Command, GoOn, Pause, Remove, SocketThread
from connectors.receive.sub_sockets import EndpointRefused
from connectors.sources import Listening, SourceKey

MAX_SOCKETS = 16_384
BEHIND_SECONDS = 2.5
"""If sockets were not all found empty for so long, messages come faster than they are taken: at other times
the thread finds them empty at least once a second."""

if TYPE_CHECKING:
    from connectors.receive.compiled_receiver import Receiver

_Socket = zmq.Socket[bytes]


class Subscriber:
    """All SUB sockets, owned by one thread (`SocketThread`).

    All methods are for the event loop that called `start`. While `hand_over_bytes` are handed over and not
    released, sockets are left unread: ZMQ's queues fill, the engine drops, and sequence numbers show it.
    """

    def __init__(
        self,
        *,
        hand_over_bytes: int,
        rest_seconds: float = REST_SECONDS,
        together: bool = True,
        refused: Callable[[EndpointRefused], None],
    ) -> None:
        """`refused` is called in the event loop for an endpoint that cannot be used.

        Messages may wait in their sockets for `rest_seconds` while these have few. With `together`, the few
        messages of several sockets are handed over as one.
        """
        self._context: zmq.Context[_Socket] = zmq.Context()
        self._context.set(zmq.MAX_SOCKETS, MAX_SOCKETS)
        self._connections: Connections[Key] = Connections(time.time)
        self.hand_over = HandOver(hand_over_bytes, self._wake)
        """Where messages come; while it is full, the sockets are left unread."""
        self._wake_up = self._context.socket(zmq.PAIR)
        woken = self._context.socket(zmq.PAIR)
        address = "inproc://subscriber"
        woken.bind(address)
        self._wake_up.connect(address)
        self._sockets = SocketThread(
            self._context,
            woken,
            self.hand_over,
            self._connections,
            refused,
            rest_seconds=rest_seconds,
            together=together,
        )
        self._thread = threading.Thread(target=self._sockets.run, name="subscriber", daemon=True)

    @property
    def behind(self) -> bool:
        """True while unseen messages may be waiting: then a source that seems idle need not be."""
        waiting = self.hand_over.full or not self.hand_over.empty
        return waiting or time.monotonic() - self._sockets.emptied_at > BEHIND_SECONDS

    def start(self) -> None:
        self.hand_over.start()
        self._thread.start()

    def receive_with(self, receiver: Receiver) -> None:
        """Receive with compiled code from now on; nobody else may use the receiver."""
        self._sockets.receiver = receiver

    def add(
        self, source: SourceKey, endpoint: str, topic: str = "", *, shared_sequence: bool = False
    ) -> None:
        """Subscribe; ZMQ connects and reconnects by itself.

        With `shared_sequence` the topic is one of several whose messages are numbered together.
        """
        self._command(Add(source, endpoint, topic, shared_sequence))

    def listen(self, listening: Listening) -> None:
        """Bind, so that engines can connect; their messages come with a `Peer` as source."""
        self._command(Add(listening, listening.endpoint))

    def remove(self, source: SourceKey) -> None:
        """Take what the socket has, then close it; a last, empty `Received` of it is handed over."""
        self._command(Remove(source))

    def pause(self, source: Key) -> None:
        """Leave a source unread until `go_on`: its engine keeps what it publishes, or drops it.

        What comes from a `Peer` meanwhile is dropped and counted, because others share its socket.
        """
        self._command(Pause(source))

    def go_on(self, source: Key) -> None:
        """Read a paused source again."""
        self._command(GoOn(source))

    def connected(self, source: Key) -> bool:
        """Tell whether a source is connected, at most REFRESH_SECONDS late.

        A peer is connected while the connection that its last message came through is open.
        """
        return self._connections.since(source) is not None

    def stop(self, seconds: float) -> None:
        """Take what the sockets hold, for `seconds` at most, then close them and end the thread."""
        self._sockets.stop(seconds)
        self._wake()

    async def join(self, seconds: float) -> None:
        """Wait for the thread's end and free the sockets."""
        await asyncio.to_thread(self._thread.join, seconds)
        if not self._thread.is_alive():
            self._wake_up.close(0)
            self._context.term()

    def _command(self, command: Command) -> None:
        self._sockets.post(command)
        self._wake()

    def _wake(self) -> None:
        with contextlib.suppress(zmq.Again):  # enough wake-ups wait already
            self._wake_up.send(b"", zmq.NOBLOCK)
