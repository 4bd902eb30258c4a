"""Messages of a socket that many engines connect to."""

from __future__ import annotations

from collections import deque
from typing import Any, cast

import zmq

from connectors.receive.listening import MAX_TOPIC_BYTES, receive_by_topic


class Frame:
    def __init__(self, data: bytes) -> None:
        self.bytes = data

    def get(self, option: int) -> int:
        raise zmq.ZMQError(zmq.EINVAL)


class Socket:
    def __init__(self, *messages: list[bytes]) -> None:
        self._messages = deque(messages)

    def recv_multipart(self, flags: int, *, copy: bool) -> list[Frame]:
        if not self._messages:
            raise zmq.Again
        return [Frame(frame) for frame in self._messages.popleft()]


def test_no_payload_that_comes_as_a_topic_is_remembered_whole() -> None:
    """Publishers of something else may connect, too, with messages of one frame."""
    payloads = [b"\x93" * 100_000 + bytes([number]) for number in range(3)]
    socket = Socket([b"kv@a@m", bytes(8), b"x"], *([payload] for payload in payloads))
    heard, emptied = receive_by_topic(cast(Any, socket), 512, 1 << 20)
    assert emptied
    assert {topic: under.messages for topic, under in heard.items()} == {
        b"kv@a@m": [[b"kv@a@m", bytes(8), b"x"]],
        payloads[0][:MAX_TOPIC_BYTES]: [[payload] for payload in payloads],
    }
