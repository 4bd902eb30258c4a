"""Receive messages with pyzmq, until the compiled receiver is loaded or where there is none.

Asking ZMQ after every frame whether the message goes on costs three times as much as receiving it. So ZMQ is
asked after the third frame only, and a closer look follows where something is not as it should be. After
what looks like a payload it is asked earlier: messages of publishers without numbers end there.
"""

from __future__ import annotations

from collections.abc import Sequence

import zmq

from connectors.frames.bundle import SEQUENCE_BYTES, SEQUENCE_HEAD, Frames, is_sequence

_MIDDLE_MASK, _MIDDLE = 0xC0, 0x80
"""UTF-8 continuation bytes. MessagePack's short arrays and maps begin with one of them, and topics do not."""


def receive_messages(
    socket: zmq.Socket[bytes], max_messages: int, max_bytes: int
) -> tuple[list[Frames], int, bool]:
    """Take what is there, up to about the bounds.

    Returns messages, their payload bytes, and whether the socket was emptied.
    """
    messages: list[Frames] = []
    receive = socket.recv
    now = zmq.NOBLOCK
    size = 0
    begun: list[bytes] = []
    try:
        while size < max_bytes and len(messages) < max_messages:
            begun = []
            first = receive(now)
            begun = [first]
            if first and first[0] & _MIDDLE_MASK == _MIDDLE and not socket.getsockopt(zmq.RCVMORE):
                messages.append(begun)
                size += len(first)
                continue
            second = receive(now)
            begun = [first, second]
            numbered = len(second) == SEQUENCE_BYTES and second.startswith(SEQUENCE_HEAD)
            if not numbered and not socket.getsockopt(zmq.RCVMORE):
                messages.append(begun)
                size += len(first) + len(second)
                continue
            # Only a frame object says whether the message goes on.
            third = receive(now, False)
            payload = third.bytes
            if third.more or not numbered:
                frames = [first, second, payload]
                while socket.getsockopt(zmq.RCVMORE):
                    frames.append(receive(now))
                messages += split_messages(frames)
                size += sum(map(len, frames))
                continue
            messages.append((first, second, payload))
            size += len(payload)
    except zmq.Again:
        # ZMQ delivers messages whole: one that ends here has too few frames.
        if begun:
            messages.append(begun)
    return messages, size, len(messages) < max_messages and size < max_bytes


def split_messages(frames: Sequence[bytes]) -> list[Sequence[bytes]]:
    """Return the messages in `frames`, which begin and end where a message does.

    Only among the first three frames may a message have ended unseen. So the last three are a valid message
    after a short one if the second of them is a sequence number; otherwise all are one malformed message.
    """
    if len(frames) > 3 and is_sequence(frames[-2]):
        return [frames[:-3], frames[-3:]]
    return [frames]
