"""The bound of a socket follows its messages, and never looks reached with nothing there to read."""

from __future__ import annotations

import random
from typing import Any, cast

import zmq

from connectors.receive.socket_room import SOCKET_BYTES, SocketRoom
from connectors.receive.sub_sockets import FIRST_MESSAGES, SOCKET_MESSAGES, high_water_mark


class Socket:
    """Tells its writer how many messages were read as libzmq does: at each multiple of half of the bound."""

    def __init__(self) -> None:
        self.bound = FIRST_MESSAGES
        self.read = self.told = 0

    def setsockopt(self, option: int, value: int) -> None:
        assert option == zmq.RCVHWM
        self.bound = value

    def take(self, messages: int) -> None:
        for _ in range(messages):
            self.read += 1
            if self.read % ((self.bound + 1) // 2) == 0:
                self.told = self.read

    @property
    def stuck(self) -> bool:
        return self.read - self.told >= self.bound


def test_a_socket_that_was_emptied_can_always_be_written_to() -> None:
    rng = random.Random(2)
    for _ in range(500):
        room, socket = SocketRoom(), Socket()
        room.add(cast(Any, socket))
        for _ in range(60):
            messages = rng.choice((1, 2, 7, 100, 512))
            socket.take(messages)
            room.took(cast(Any, socket), messages, rng.choice((1, 300, 50_000, 3 << 20)))
            assert not socket.stuck


def test_many_small_messages_get_room_and_large_or_few_ones_do_not() -> None:
    room, small, large, few = SocketRoom(), Socket(), Socket(), Socket()
    for socket in (small, large, few):
        room.add(cast(Any, socket))
    for _ in range(20):
        room.took(cast(Any, small), 512, 1_000)
        room.took(cast(Any, large), 512, 1 << 20)
        room.took(cast(Any, few), 7, 1_000)
    assert (small.bound, large.bound, few.bound) == (SOCKET_MESSAGES, FIRST_MESSAGES, FIRST_MESSAGES)
    assert large.bound << 20 <= SOCKET_BYTES


def test_sockets_among_many_get_less() -> None:
    room, sockets = SocketRoom(), [Socket() for _ in range(640)]
    for socket in sockets:
        room.add(cast(Any, socket))
    for _ in range(20):
        room.took(cast(Any, sockets[0]), 512, 1)
    assert sockets[0].bound == high_water_mark(640) == 100
