"""Monitors tell since when a source is connected, and forget it when the connection ends."""

from __future__ import annotations

import time
from collections.abc import Callable

import zmq

from connectors.receive.monitors import Connections

SOURCE = ("r", 0)


def _until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_a_source_is_connected_since_its_connection_began(context: zmq.Context[zmq.Socket[bytes]]) -> None:
    engine = context.socket(zmq.XPUB)
    endpoint = f"tcp://127.0.0.1:{engine.bind_to_random_port('tcp://127.0.0.1')}"
    connections: Connections[tuple[str, int]] = Connections(time.time)
    socket = context.socket(zmq.SUB)

    def since() -> float | None:
        connections.refresh()
        return connections.since(SOURCE)

    connections.watch(socket, SOURCE)
    before = time.time()
    socket.connect(endpoint)
    _until(lambda: since() is not None)
    first = since()
    assert first is not None
    assert before <= first <= time.time()
    assert since() == first
    engine.close(0)
    _until(lambda: since() is None)
    reborn = context.socket(zmq.XPUB)
    reborn.bind(endpoint)
    _until(lambda: since() is not None)
    again = since()
    assert again is not None
    assert again > first
    connections.forget(socket)
    assert since() is None
