"""Binds sockets to addresses of this machine, with readable reasons where that fails."""

from __future__ import annotations

from errno import EADDRNOTAVAIL, EAFNOSUPPORT, ENODEV

import zmq


def bound(socket: zmq.Socket[bytes], endpoint: str) -> str:
    """Bind a socket and return its endpoint, with the port that it got.

    Raises OSError, and closes the socket, if it cannot listen there.
    """
    socket.setsockopt(zmq.IPV6, int("[" in endpoint))
    try:
        socket.bind(endpoint)
    except zmq.ZMQError as error:
        socket.close(0)
        # libzmq's error for a host name: it binds to numeric addresses and interfaces only.
        reason = "no address of this machine" if error.errno == ENODEV else zmq.strerror(error.errno or 0)
        raise OSError(error.errno, f"cannot listen on {endpoint}: {reason}") from error
    return bytes(socket.getsockopt(zmq.LAST_ENDPOINT)).rstrip(b"\0").decode()


def listen(socket: zmq.Socket[bytes], endpoint: str) -> None:
    """Bind a socket; `*` stands for every address, IPv4 and IPv6. Raises ZMQError."""
    if endpoint.startswith("tcp://*:"):
        socket.setsockopt(zmq.IPV6, 1)
        try:
            socket.bind(endpoint)
            return
        except zmq.ZMQError as error:
            # Where IPv6 is off, only the IPv4 addresses are bound, below.
            if error.errno not in (EADDRNOTAVAIL, EAFNOSUPPORT):
                raise
    socket.setsockopt(zmq.IPV6, int("[" in endpoint))
    socket.bind(endpoint)
