"""Receive from a socket that many engines connect to, and separate their messages by topic."""

from __future__ import annotations

from dataclasses import dataclass

import zmq

from connectors.frames.bundle import Frames

MAX_TOPIC_BYTES = 1_024
"""Longer topics, which no engine has, are cut: each is remembered for a while, and may be a payload."""


@dataclass(slots=True)
class Heard:
    """What came under one topic."""

    messages: list[Frames]
    size: int
    """Bytes of the frames."""
    descriptor: int | None
    """Of the connection that the last message came through; None where ZMQ gives none."""


def receive_by_topic(
    socket: zmq.Socket[bytes], max_messages: int, max_bytes: int
) -> tuple[dict[bytes, Heard], bool]:
    """Take what is there, up to about the bounds: (by topic, whether the socket was emptied)."""
    heard: dict[bytes, Heard] = {}
    count = size = 0
    while count < max_messages and size < max_bytes:
        try:
            parts = socket.recv_multipart(zmq.NOBLOCK, copy=False)
        except zmq.Again:
            return heard, True
        frames = [part.bytes for part in parts]
        length = sum(map(len, frames))
        descriptor = _descriptor(parts[-1])
        topic = frames[0][:MAX_TOPIC_BYTES]
        known = heard.get(topic)
        if known is None:
            heard[topic] = Heard([frames], length, descriptor)
        else:
            known.messages.append(frames)
            known.size += length
            known.descriptor = descriptor
        count += 1
        size += length
    return heard, False


def _descriptor(frame: zmq.Frame) -> int | None:
    """Return the descriptor of the connection that a frame came through, None where ZMQ gives none.

    It gives none for connections of its first protocols, and takes any bytes sent to the port for such a one.
    """
    try:
        return int(frame.get(zmq.SRCFD))
    except zmq.ZMQError:
        return None
