"""Messages as pyzmq receives them: where one ends and the next one begins."""

from __future__ import annotations

import time

import pytest
import zmq

from connectors.receive.plain_receiver import receive_messages

Frames = list[bytes]
BATCH = b"\x92\xcb\x41\xda\xc0\xf9\x53\xad\xd7\xf3\x90"


def numbered(seq: int) -> Frames:
    return [b"kv", seq.to_bytes(8, "big"), BATCH]


def received(context: zmq.Context[zmq.Socket[bytes]], sent: list[Frames]) -> list[Frames]:
    """Return what came, when all of it is there at once."""
    with context.socket(zmq.PUSH) as push, context.socket(zmq.PULL) as pull:
        pull.bind("inproc://engine")
        push.connect("inproc://engine")
        for frames in sent:
            push.send_multipart(frames)
        assert pull.poll(60_000)
        found: list[Frames] = []
        deadline = time.monotonic() + 60
        while sum(map(len, found)) < sum(map(len, sent)):
            assert time.monotonic() < deadline
            messages, size, emptied = receive_messages(pull, 1000, 1 << 20)
            assert emptied
            assert size >= sum(len(frames[-1]) for frames in messages)
            found += map(list, messages)
        return found


@pytest.mark.parametrize(
    "sent",
    [
        [[BATCH]] * 7,
        [[b"kv", BATCH]] * 7,
        [[b"", BATCH]] * 2 + [[BATCH]] * 2,
        [numbered(1), [BATCH], numbered(2), [b"kv", BATCH], numbered(3)],
        [[b"kv", b"12345678", BATCH], [BATCH]],
    ],
    ids=["one frame", "two frames", "both", "among numbered ones", "behind a bad number"],
)
def test_messages_without_numbers_stay_apart(
    context: zmq.Context[zmq.Socket[bytes]], sent: list[Frames]
) -> None:
    assert received(context, sent) == sent
