"""How a ZMQ socket reaches an engine whose name may have IPv4 and IPv6 addresses.

Each time that it connects, a libzmq socket asks the resolver for one kind of address and takes the first one;
a socket that asks for IPv6 takes IPv4 if the name has nothing else. So an engine whose name has both kinds,
and which listens on one, is reached only if that kind is asked for.
"""

from __future__ import annotations

import re

import zmq

FIRST_SECONDS = 1.0
"""How long the first kind is tried; each try after it takes twice as long as the one before."""
LONGEST_SECONDS = 30.0
"""Longest try; also how long a lost connection may take to come back by the same kind."""

_NUMBERS = re.compile(r"tcp://[0-9.]+:\d+")


def kinds_of(endpoint: str) -> tuple[bool, ...]:
    """Return, for each kind to try in order, whether it is IPv6; a name may have both, IPv4 comes first."""
    if endpoint.startswith("tcp://["):
        return (True,)
    if not endpoint.startswith("tcp://") or _NUMBERS.fullmatch(endpoint):
        return (False,)
    return (False, True)


def connect(socket: zmq.Socket[bytes], endpoint: str, *, ipv6: bool) -> None:
    """Let a socket connect, and reconnect, by addresses of one kind. Raises ZMQError."""
    socket.setsockopt(zmq.IPV6, int(ipv6))
    socket.connect(endpoint)


class Dialling:
    """Connects a socket to its endpoint by one kind of address and the other in turn, until it succeeds."""

    def __init__(self, socket: zmq.Socket[bytes], endpoint: str, now: float) -> None:
        """Begin to connect; `now` is of any monotonic clock. Raises ZMQError."""
        self._socket = socket
        self._endpoint = endpoint
        self._kinds = kinds_of(endpoint)
        self._tries = 0
        self._patience = FIRST_SECONDS
        self._until = now + FIRST_SECONDS
        connect(socket, endpoint, ipv6=self._kinds[0])

    def look(self, connected: bool, now: float) -> None:
        """Try the other kind, if there is one, once the present one has had its time.

        That discards what the socket still holds unread of a lost connection.
        """
        if connected:
            self._patience, self._until = FIRST_SECONDS, now + LONGEST_SECONDS
        elif now >= self._until and len(self._kinds) > 1:
            self._patience = min(2 * self._patience, LONGEST_SECONDS)
            self._until = now + self._patience
            self._tries += 1
            self._socket.disconnect(self._endpoint)
            connect(self._socket, self._endpoint, ipv6=self._kinds[self._tries % len(self._kinds)])
