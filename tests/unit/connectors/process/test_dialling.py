"""Which kind of address a socket asks for, and when it asks for the other."""

from __future__ import annotations

from itertools import pairwise
from typing import Any, cast

import pytest
import zmq

from connectors.process.binding import listen
from connectors.process.dialling import FIRST_SECONDS, LONGEST_SECONDS, Dialling, kinds_of


class FakeSocket:
    def __init__(self) -> None:
        self.ipv6 = -1
        self.connected: list[int] = []

    def setsockopt(self, option: int, value: int) -> None:
        assert option == zmq.IPV6
        self.ipv6 = value

    def connect(self, endpoint: str) -> None:
        self.connected.append(self.ipv6)

    def disconnect(self, endpoint: str) -> None:
        self.ipv6 = -1


@pytest.mark.parametrize(
    ("endpoint", "kinds"),
    [
        ("tcp://10.0.0.1:5557", (False,)),
        ("tcp://[fd00::1]:5557", (True,)),
        ("tcp://[fe80::1%eth0]:5557", (True,)),
        ("ipc:///tmp/x", (False,)),
        ("tcp://vllm-0.vllm:5557", (False, True)),
        ("tcp://10.example:5557", (False, True)),
    ],
)
def test_names_alone_may_have_two_kinds(endpoint: str, kinds: tuple[bool, ...]) -> None:
    assert kinds_of(endpoint) == kinds


def test_kinds_take_turns_that_get_longer_until_one_connects() -> None:
    socket = FakeSocket()
    dialling = Dialling(cast(Any, socket), "tcp://name:1", 0.0)
    tried = [(0.0, 0)]
    for tenth in range(2000):
        dialling.look(False, tenth / 10)
        if len(socket.connected) > len(tried):
            tried.append((tenth / 10, socket.connected[-1]))
    assert [kind for _, kind in tried] == [number % 2 for number in range(len(tried))]
    pauses = [later - earlier for (earlier, _), (later, _) in pairwise(tried)]
    assert pauses[:3] == [FIRST_SECONDS, 2 * FIRST_SECONDS, 4 * FIRST_SECONDS]
    assert max(pauses) == LONGEST_SECONDS
    count = len(socket.connected)
    dialling.look(True, 1000.0)
    dialling.look(False, 1000.0 + LONGEST_SECONDS - 0.1)
    assert len(socket.connected) == count
    dialling.look(False, 1000.0 + LONGEST_SECONDS)
    assert len(socket.connected) == count + 1


def test_an_address_is_dialled_once() -> None:
    socket = FakeSocket()
    dialling = Dialling(cast(Any, socket), "tcp://10.0.0.1:1", 0.0)
    dialling.look(False, 1e6)
    assert socket.connected == [0]


@pytest.mark.parametrize("host", ["127.0.0.1", "[::1]"])
def test_who_listens_everywhere_is_reached_by_both_kinds(host: str) -> None:
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    with context.socket(zmq.PULL) as server, context.socket(zmq.PUSH) as client:
        listen(server, "tcp://*:*")
        port = bytes(server.getsockopt(zmq.LAST_ENDPOINT)).rstrip(b"\0").decode().rpartition(":")[2]
        client.setsockopt(zmq.LINGER, 0)
        client.setsockopt(zmq.IPV6, int(host.startswith("[")))
        client.connect(f"tcp://{host}:{port}")
        client.send(b"there")
        assert server.poll(60_000)
        assert server.recv() == b"there"
    context.term()
