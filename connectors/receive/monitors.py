"""Which event streams are connected, as ZMQ's own monitors report."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

import zmq
from zmq.utils.monitor import parse_monitor_message

Socket = zmq.Socket[bytes]
Key = TypeVar("Key", bound=Hashable)

_EVENTS = zmq.Event.ACCEPTED | zmq.Event.HANDSHAKE_SUCCEEDED | zmq.Event.DISCONNECTED


class Connections(Generic[Key]):
    """Monitors of sockets, for the thread that owns these; any thread may call `since`.

    Monitors are read when `refresh` is called, so their cost does not depend on the traffic. A key is a
    source with a socket of its own, or the peer at the other end of a listening socket's connection.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._monitors: dict[Socket, tuple[Key | None, Socket]] = {}
        self._since: dict[Key, float] = {}
        self._peers: dict[Socket, dict[int, Key | None]] = {}
        """For listening sockets: the key last heard through each connection, by its descriptor."""

    def since(self, key: Key) -> float | None:
        """Return since when a key is connected, as of the last refresh; None if it is not."""
        return self._since.get(key)

    def watch(self, socket: Socket, key: Key) -> None:
        """Watch a socket that connects to one peer; call it before it does."""
        self._monitors[socket] = (key, socket.get_monitor_socket(_EVENTS))

    def listen(self, socket: Socket) -> None:
        """Watch a socket that peers connect to; call it before it binds."""
        self._monitors[socket] = (None, socket.get_monitor_socket(_EVENTS))
        self._peers[socket] = {}

    def heard(self, socket: Socket, descriptor: int, key: Key) -> None:
        """Note that a message of `key` came through this connection of a listening socket.

        ZMQ gives the descriptor with the message. By now it may belong to another connection, so the key
        heard last has it.
        """
        peers = self._peers[socket]
        if descriptor not in peers:
            self._read(socket)
        before = peers.get(descriptor)
        if descriptor in peers and before != key:
            peers[descriptor] = key
            self._since.setdefault(key, self._clock())
            self._leave(peers, before)

    def refresh(self) -> None:
        """Read what the monitors report."""
        for socket in self._monitors:
            self._read(socket)

    def forget(self, socket: Socket) -> None:
        """Stop watching a socket that is about to be closed."""
        if socket not in self._monitors:
            return
        key, monitor = self._monitors.pop(socket)
        if key is not None:
            self._since.pop(key, None)
        for peer in self._peers.pop(socket, {}).values():
            if peer is not None:
                self._since.pop(peer, None)
        socket.disable_monitor()
        monitor.close(0)

    def _read(self, socket: Socket) -> None:
        key, monitor = self._monitors[socket]
        while True:
            try:
                message = parse_monitor_message(monitor.recv_multipart(zmq.NOBLOCK))
            except zmq.Again:
                return
            event = message["event"]
            if key is None:
                peers = self._peers[socket]
                if event == zmq.Event.ACCEPTED:
                    peers[message["value"]] = None
                elif event == zmq.Event.DISCONNECTED:
                    self._leave(peers, peers.pop(message["value"], None))
            elif event == zmq.Event.HANDSHAKE_SUCCEEDED:
                self._since[key] = self._clock()
            elif event == zmq.Event.DISCONNECTED:
                self._since.pop(key, None)

    def _leave(self, peers: dict[int, Key | None], key: Key | None) -> None:
        if key is not None and key not in peers.values():
            self._since.pop(key, None)
