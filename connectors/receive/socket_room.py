"""How many messages each socket may hold, so that few large ones do not take what many small ones may.

ZMQ bounds a socket in messages, not in bytes. So the bound is low at first, and is doubled where small
messages come faster than they are taken. What does not fit stays with the engine, to drop from its queue.

It is never lowered. ZMQ tells the writing end only at multiples of half of the bound how many messages were
read; a bound below what it was not told yet would look reached for ever, with nothing there to read.
"""

from __future__ import annotations

import zmq

from connectors.receive.sub_sockets import FIRST_MESSAGES, high_water_mark

SOCKET_BYTES = 16 << 20
"""What a socket may hold in messages as large as the largest that a turn brought."""

_Socket = zmq.Socket[bytes]


class SocketRoom:
    """Sets the high-water marks of sockets. All methods are for the thread that owns these."""

    def __init__(self) -> None:
        self._bounds: dict[_Socket, int] = {}

    def add(self, socket: _Socket) -> None:
        """Look after a socket that was opened with room for FIRST_MESSAGES."""
        self._bounds[socket] = FIRST_MESSAGES

    def remove(self, socket: _Socket) -> None:
        """Forget a socket."""
        del self._bounds[socket]

    def took(self, socket: _Socket, messages: int, largest: int) -> None:
        """A turn brought messages, the largest of so many bytes."""
        bound = self._bounds[socket]
        more = min(2 * bound, high_water_mark(len(self._bounds)))
        if bound < more and 2 * messages >= bound and more * largest <= SOCKET_BYTES:
            socket.setsockopt(zmq.RCVHWM, more)
            self._bounds[socket] = more
