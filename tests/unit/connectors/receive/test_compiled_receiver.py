"""Compiled receiving gives the frames that were sent, whatever they are."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from typing import Any, cast

import pytest
import zmq

from connectors.frames.bundle import Bundle
from connectors.frames.framing import MAX_SEQUENCE
from connectors.normalise.scan import scan
from connectors.normalise.scanner.payloads import transcode
from connectors.receive.compiled_receiver import Receiver

Socket = zmq.Socket[bytes]


@pytest.fixture
def sockets() -> Iterator[tuple[Socket, Socket]]:
    """A sender and a receiver that are connected."""
    context: zmq.Context[Socket] = zmq.Context()
    sender, receiver = context.socket(zmq.PAIR), context.socket(zmq.PAIR)
    for socket in (sender, receiver):
        socket.setsockopt(zmq.LINGER, 0)
        socket.set_hwm(0)
    sender.bind("inproc://engine")
    receiver.connect("inproc://engine")
    yield sender, receiver
    sender.close()
    receiver.close()
    context.term()


def received(socket: Socket, receiver: Receiver) -> list[list[bytes]]:
    """Return all that is there; the topics of whole messages are not kept."""
    messages: list[list[bytes]] = []
    while True:
        bundle, emptied = receiver.take(socket)
        messages += map(list, bundle)
        if emptied:
            return messages


def seq(number: int) -> bytes:
    return number.to_bytes(8, "big")


def expected(frames: Sequence[bytes]) -> list[bytes]:
    whole = len(frames) == 3 and len(frames[1]) == 8 and int.from_bytes(frames[1], "big") < MAX_SEQUENCE
    return [b"", *frames[1:]] if whole else list(frames[:4])


def test_messages_arrive_whole_and_in_order_over_many_turns(sockets: tuple[Socket, Socket]) -> None:
    sender, receiver = sockets
    rng = random.Random(5)
    sent = [[b"kv-events", seq(n), rng.randbytes(rng.randrange(2_000))] for n in range(3_000)]
    for frames in sent:
        sender.send_multipart(frames)
    assert received(receiver, Receiver(messages=128, size=50_000)) == [expected(frames) for frames in sent]


WRONG: list[list[bytes]] = [
    [b""],
    [b"one"],
    [b"topic", seq(1)],
    [b"topic", b"", b""],
    [b"topic", b"1234567", b"payload"],
    [b"topic", b"123456789", b"payload"],
    [b"topic", seq(MAX_SEQUENCE), b"payload"],
    [b"topic", b"\xff" * 8, b"payload"],
    [b"topic", seq(1), b"payload", b""],
    [b"topic", seq(1), b"payload", b"more", b"and more"],
    [b"x" * 100] * 5_000,
]


def test_wrong_messages_keep_their_place(sockets: tuple[Socket, Socket]) -> None:
    sender, receiver = sockets
    sent: list[list[bytes]] = []
    for n, frames in enumerate(WRONG * 20):
        sent += [frames, [b"", seq(n), b"good"]]
    for frames in sent:
        sender.send_multipart(frames)
    assert received(receiver, Receiver(messages=512, size=1 << 20)) == [expected(frames) for frames in sent]


def test_frames_larger_than_the_memory_for_a_turn(sockets: tuple[Socket, Socket]) -> None:
    sender, receiver = sockets
    large = random.Random(6).randbytes(20 << 20)
    sent = [
        [b"t", seq(0), b"a"],
        [b"t", seq(1), large],
        [b"t", seq(2), b""],
        [large, seq(3), large, b""],
        [b"t", seq(MAX_SEQUENCE - 1), b"z"],
    ]
    for frames in sent:
        sender.send_multipart(frames)
    assert received(receiver, Receiver(messages=512, size=1 << 20)) == [expected(frames) for frames in sent]


def test_a_turn_has_its_bounds(sockets: tuple[Socket, Socket]) -> None:
    sender, socket = sockets
    for n in range(10):
        sender.send_multipart([b"t", seq(n), bytes(1_000)])
    bundle, emptied = Receiver(messages=4, size=1 << 20).take(socket)
    assert (len(bundle), emptied, bundle.size) == (4, False, 4 * 1_009)
    bundle, emptied = Receiver(messages=512, size=1_500).take(socket)
    assert (len(bundle), emptied) == (2, False)
    bundle, emptied = Receiver(messages=512, size=1 << 20).take(socket)
    assert (bundle.seqs.tolist(), emptied) == ([6, 7, 8, 9], True)
    bundle, emptied = Receiver(messages=512, size=1 << 20).take(socket)
    assert (len(bundle), emptied) == (0, True)


def test_the_scanner_is_compiled_once_whoever_received(sockets: tuple[Socket, Socket]) -> None:
    """A second time would stop the connector for seconds."""
    sender, socket = sockets
    sender.send_multipart([b"t", seq(0), b"\xc0"])
    sender.send_multipart([b"odd"])
    bundle, _ = Receiver(messages=4, size=1 << 20).take(socket)
    for messages in (bundle, Bundle.of(bundle), Bundle.of([])):
        scan(messages, 1.0, max_frame_bytes=1 << 20, forward_session_ids=False)
    signatures: list[Any] = cast(Any, transcode).signatures
    assert len(signatures) == 1
