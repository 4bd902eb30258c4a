"""Sockets that listen on every address of this machine."""

from __future__ import annotations

import errno
import socket
from collections.abc import Iterator

import pytest
import zmq

from connectors.process.binding import listen


@pytest.fixture
def listener() -> Iterator[zmq.Socket[bytes]]:
    with zmq.Context() as context, context.socket(zmq.SUB) as made:
        made.linger = 0
        yield made


def test_a_port_that_another_process_has_for_ipv6_is_not_listened_on_by_half(
    listener: zmq.Socket[bytes],
) -> None:
    with socket.socket(socket.AF_INET6, socket.SOCK_STREAM) as other:
        other.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        other.bind(("::", 0))
        other.listen()
        with pytest.raises(zmq.ZMQError) as raised:
            listen(listener, f"tcp://*:{other.getsockname()[1]}")
    assert raised.value.errno == errno.EADDRINUSE


@pytest.mark.parametrize("reason", [errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT])
def test_without_ipv6_the_others_are_listened_on(reason: int) -> None:
    bound: list[int] = []

    class Socket:
        """Of a machine that has no IPv6."""

        def setsockopt(self, option: int, value: int) -> None:
            assert option == zmq.IPV6
            self.ipv6 = value

        def bind(self, endpoint: str) -> None:
            if self.ipv6:
                raise zmq.ZMQError(reason)
            bound.append(self.ipv6)

    listen(Socket(), "tcp://*:5557")  # type: ignore[arg-type]
    assert bound == [0]


@pytest.mark.parametrize("address", ["127.0.0.1", "::1"])
def test_every_address_is_listened_on(listener: zmq.Socket[bytes], address: str) -> None:
    listen(listener, "tcp://*:*")
    port = int(bytes(listener.getsockopt(zmq.LAST_ENDPOINT)).rstrip(b"\0").rpartition(b":")[2])
    socket.create_connection((address, port), timeout=60.0).close()
