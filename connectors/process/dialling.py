"""How a ZMQ socket gets to an engine whose name may have addresses of two kinds.

A socket of libzmq asks the resolver for one kind of address, each time that it connects, and takes the first
that it is told; one that asks for IPv6 takes IPv4 where the name has nothing else. So whether an engine
that listens on one kind is reached by a name with both is a matter of which kind is asked for.
"""

from __future__ import annotations

import re

import zmq

FIRST_SECONDS = 1.0
"""So long the first kind is tried, and twice as long each time after it."""
LONGEST_SECONDS = 30.0
"""Also how long a connection that is lost may take to come back the way it came."""

_NUMBERS = re.compile(r"tcp://[0-9.]+:\d+")


def kinds_of(endpoint: str) -> tuple[bool, ...]:
    """Return whether to ask for IPv6 addresses: for a name no, which comes first, and yes."""
    if endpoint.startswith("tcp://["):
        return (True,)
    if not endpoint.startswith("tcp://") or _NUMBERS.fullmatch(endpoint):
        return (False,)
    return (False, True)


def connect(socket: zmq.Socket[bytes], endpoint: str, *, ipv6: bool) -> None:
    """Begin to connect, and to connect again, by addresses of one kind. Raises ZMQError."""
    socket.setsockopt(zmq.IPV6, int(ipv6))
    socket.connect(endpoint)


class Dialling:
    """A socket's way to its endpoint: by one kind of address and then by the other, until it is connected."""

    def __init__(self, socket: zmq.Socket[bytes], endpoint: str, now: float) -> None:
        """Begin to connect; `now` is of any clock that goes forward. Raises ZMQError."""
        self._socket = socket
        self._endpoint = endpoint
        self._kinds = kinds_of(endpoint)
        self._tries = 0
        self._patience = FIRST_SECONDS
        self._until = now + FIRST_SECONDS
        connect(socket, endpoint, ipv6=self._kinds[0])

    def look(self, connected: bool, now: float) -> None:
        """Try the other kind if there is one and the present one had its time.

        What the socket holds unread of a connection that was lost is let go by that.
        """
        if connected:
            self._patience, self._until = FIRST_SECONDS, now + LONGEST_SECONDS
        elif now >= self._until and len(self._kinds) > 1:
            self._patience = min(2 * self._patience, LONGEST_SECONDS)
            self._until = now + self._patience
            self._tries += 1
            self._socket.disconnect(self._endpoint)
            connect(self._socket, self._endpoint, ipv6=self._kinds[self._tries % len(self._kinds)])
