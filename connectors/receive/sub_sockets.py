"""SUB sockets with the options that the connector needs."""

from __future__ import annotations

import zmq

from connectors.process.errors import OperatorError
from connectors.sources import Listening, SourceKey

SOCKET_MESSAGES = 1_000
"""Messages that a socket holds for us while we do not read. More would make nothing faster: beyond it TCP
holds back the engines' queues, and they drop what does not fit there."""
SOCKETS_MESSAGES = 64_000
"""Messages that sockets opened together hold; where there are many, each holds less."""
MIN_SOCKET_MESSAGES = 100
PEER_MESSAGES = MIN_SOCKET_MESSAGES
"""Messages that a socket that engines connect to holds of each: there may be a thousand."""
MAX_MESSAGE_BYTES = 256 << 20
"""A larger frame ends its connection: ZMQ takes it into memory before anybody sees how large it is."""
RECEIVE_BUFFER_BYTES = 256 << 10
"""The kernel's buffer for each connection; its own choice can be megabytes."""
RECONNECT_MILLISECONDS = 100
RECONNECT_MAX_MILLISECONDS = 5_000
HANDSHAKE_MILLISECONDS = 10_000
KEEPALIVE_IDLE_SECONDS = 30
KEEPALIVE_INTERVAL_SECONDS = 10
KEEPALIVE_PROBES = 3


class EndpointRefused(OperatorError):
    """ZMQ cannot use an endpoint."""

    source: SourceKey | Listening
    endpoint: str
    reason: str

    def __str__(self) -> str:
        if isinstance(self.source, Listening):
            return f"cannot listen on {self.endpoint}: {self.reason}; correct the endpoint"
        replica, rank = self.source
        return f"cannot subscribe to {self.endpoint} of {replica}/{rank}: {self.reason}; correct the endpoint"


def new_sub_socket(context: zmq.Context[zmq.Socket[bytes]], topic: str, messages: int) -> zmq.Socket[bytes]:
    """Return a socket with a subscription, for the caller to connect (`Dialling`) or to bind (`listen`).

    It holds `messages`, which is never changed: a libzmq socket whose limit changes while it is open may wait
    for ever for room that it has.
    """
    socket = context.socket(zmq.SUB)
    socket.setsockopt(zmq.RCVHWM, messages)
    socket.setsockopt(zmq.MAXMSGSIZE, MAX_MESSAGE_BYTES)
    socket.setsockopt(zmq.RCVBUF, RECEIVE_BUFFER_BYTES)
    socket.setsockopt(zmq.LINGER, 0)
    socket.setsockopt(zmq.RECONNECT_IVL, RECONNECT_MILLISECONDS)
    socket.setsockopt(zmq.RECONNECT_IVL_MAX, RECONNECT_MAX_MILLISECONDS)
    socket.setsockopt(zmq.HANDSHAKE_IVL, HANDSHAKE_MILLISECONDS)
    socket.setsockopt(zmq.TCP_KEEPALIVE, 1)
    socket.setsockopt(zmq.TCP_KEEPALIVE_IDLE, KEEPALIVE_IDLE_SECONDS)
    socket.setsockopt(zmq.TCP_KEEPALIVE_INTVL, KEEPALIVE_INTERVAL_SECONDS)
    socket.setsockopt(zmq.TCP_KEEPALIVE_CNT, KEEPALIVE_PROBES)
    socket.setsockopt(zmq.SUBSCRIBE, topic.encode())
    return socket


def high_water_mark(sockets: int) -> int:
    """Return how many messages a socket may hold that is opened as one of `sockets`."""
    return max(MIN_SOCKET_MESSAGES, min(SOCKET_MESSAGES, SOCKETS_MESSAGES // max(sockets, 1)))
