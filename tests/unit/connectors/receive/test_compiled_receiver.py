"""Compiled receiving gives the frames that were sent, whatever they are."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, cast

import pytest
import zmq

from connectors.frames.bundle import MAX_SEQUENCE, MESSAGE_SEQ, Bundle
from connectors.normalise.scan import parts_of, scan, scan_joined, scan_side_by_side
from connectors.normalise.scanner.payloads import transcode
from connectors.receive.compiled_receiver import Receiver
from tests.support.suite.night import first_by_day

Socket = zmq.Socket[bytes]

ROOM = 64 << 20


@contextmanager
def connected(count: int) -> Iterator[list[tuple[Socket, Socket]]]:
    """Senders and the receivers that they are connected to."""
    context: zmq.Context[Socket] = zmq.Context()
    pairs = [(context.socket(zmq.PAIR), context.socket(zmq.PAIR)) for _ in range(count)]
    for number, pair in enumerate(pairs):
        for socket in pair:
            socket.setsockopt(zmq.LINGER, 0)
            socket.set_hwm(0)
        pair[0].bind(f"inproc://engine-{number}")
        pair[1].connect(f"inproc://engine-{number}")
    yield pairs
    for pair in pairs:
        for socket in pair:
            socket.close()
    context.term()


@pytest.fixture
def sockets() -> Iterator[tuple[Socket, Socket]]:
    with connected(1) as (pair,):
        yield pair


@pytest.fixture
def many() -> Iterator[list[tuple[Socket, Socket]]]:
    with connected(40) as pairs:
        yield pairs


def taken(receiver: Receiver, sockets: Sequence[Socket], room: int) -> list[tuple[Bundle, bool]]:
    """Return what the receiver takes of each socket; what it gives of all together has to be the same."""
    turns = receiver.take(sockets, room)
    each = [turns.bundle(number) for number in range(len(turns.emptied))]
    size = random.Random(len(each)).choice((1, 1_000, 10_000, 1 << 30))
    most = random.Random(size).choice((1, 3, 50, 1 << 20))
    largest = random.Random(most).choice((0, 100, 5_000, 1 << 30))
    ranges = turns.ranges(most, largest, size)
    assert [number for first, end in ranges for number in range(first, end)] == list(range(len(each)))
    for (first, end), (_, behind) in zip(ranges, [*ranges[1:], ranges[-1]], strict=True):
        alone = end - first == 1
        sizes = [bundle.size for bundle in each[first:behind]]
        assert alone or sum(sizes[: end - first]) <= size
        apart = any(
            bundle.malformed or len(bundle) > most or bundle.size > largest for bundle in each[first:behind]
        )
        assert behind == end or apart or sum(sizes) > size
        if alone:
            continue
        numbers, bundles = turns.bundles(first, end)
        assert numbers == [number for number in range(first, end) if each[number]]
        for at, number in enumerate(numbers):
            assert not each[number].malformed
            assert len(each[number]) <= most
            assert each[number].size <= largest
            assert list(bundles.bundle(at)) == list(each[number])
            assert bundles.bundle(at).size == each[number].size
        assert bundles.messages == sum(map(len, each[first:end]))
    return list(zip(each, turns.emptied, strict=True))


def received(socket: Socket, receiver: Receiver) -> list[list[bytes]]:
    """Return all that is there; the topics of whole messages are not kept."""
    messages: list[list[bytes]] = []
    while True:
        ((bundle, emptied),) = taken(receiver, [socket], ROOM)
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
    ((bundle, emptied),) = taken(Receiver(messages=4, size=1 << 20), [socket], ROOM)
    assert (len(bundle), emptied, bundle.size) == (4, False, 4 * 1_009)
    ((bundle, emptied),) = taken(Receiver(messages=512, size=1_500), [socket], ROOM)
    assert (len(bundle), emptied) == (2, False)
    ((bundle, emptied),) = taken(Receiver(messages=512, size=1 << 20), [socket], ROOM)
    assert (bundle.table[MESSAGE_SEQ].tolist(), emptied) == ([6, 7, 8, 9], True)
    ((bundle, emptied),) = taken(Receiver(messages=512, size=1 << 20), [socket], ROOM)
    assert (len(bundle), emptied) == (0, True)


@pytest.mark.parametrize("turns", first_by_day([6, 60]))
def test_many_sockets_in_one_go_each_with_its_own_messages(
    many: list[tuple[Socket, Socket]], turns: int
) -> None:
    rng = random.Random(8)
    sockets = [socket for _, socket in many]
    sent: list[list[list[bytes]]] = [[] for _ in many]
    found: list[list[list[bytes]]] = [[] for _ in many]
    receiver = Receiver(messages=64, size=50_000)
    for _ in range(turns):
        for number, (sender, _) in enumerate(many):
            for _ in range(rng.choice((0, 0, 1, 2, 30, 100)) if number != 7 else 200):
                size = rng.choice((0, 10, 500, 5_000)) if rng.random() < 0.9999 else 9 << 20
                good = [b"kv-events", seq(len(sent[number])), rng.randbytes(size)]
                frames = good if rng.random() < 0.9 else rng.choice(WRONG)
                sender.send_multipart(frames)
                sent[number].append(expected(frames))
        at = 0
        while at < len(sockets):
            went = taken(receiver, sockets[at:], rng.choice((0, 3_000, ROOM)))
            assert went
            for bundle, emptied in went:
                found[at] += map(list, bundle)
                assert not emptied or len(found[at]) == len(sent[at])
                at += 1
    for number, socket in enumerate(sockets):
        assert found[number] + received(socket, receiver) == sent[number]


def test_it_goes_on_to_the_next_socket_while_there_is_room(many: list[tuple[Socket, Socket]]) -> None:
    sockets = [socket for _, socket in many]
    for sender, _ in many:
        sender.send_multipart([b"", seq(1), bytes(792)])
    receiver = Receiver(messages=512, size=1 << 20)
    assert [len(bundle) for bundle, _ in taken(receiver, sockets, 2_500)] == [1, 1, 1]
    assert [len(bundle) for bundle, _ in taken(receiver, sockets[3:], 0)] == [1]
    rest = taken(receiver, sockets, ROOM)
    assert [len(bundle) for bundle, _ in rest] == [0] * 4 + [1] * 36
    assert all(emptied for _, emptied in rest)


def test_the_scanner_is_compiled_once_whoever_received(sockets: tuple[Socket, Socket]) -> None:
    """A second time would stop the connector for seconds."""
    sender, socket = sockets
    sender.send_multipart([b"t", seq(0), b"\xc0"])
    sender.send_multipart([b"odd"])
    receiver = Receiver(messages=4, size=1 << 20)
    ((bundle, _),) = taken(receiver, [socket], ROOM)
    for messages in (bundle, Bundle.of(bundle), Bundle.of([])):
        scan(messages, 1.0, max_frame_bytes=1 << 20)
    first, others = bundle.split(0, 1)
    for bundles in ([bundle, bundle], [first, others], [Bundle.of([]), first]):
        times = [1.0] * len(bundles)
        scan_joined(bundles, times, max_frame_bytes=1 << 20)
    sender.send_multipart([b"t", seq(1), b"\xc0"])
    _, bundles = receiver.take([socket], ROOM).bundles(0, 1)
    parts = parts_of(bundles.ends, bundles.begins, 1.0)
    scan_side_by_side(bundles.data, bundles.table, parts, max_frame_bytes=1 << 20)
    signatures: list[Any] = cast(Any, transcode).signatures
    assert len(signatures) == 1
