from __future__ import annotations

import asyncio
import random
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest
import zmq

from connectors.frames.bundle import Frames
from connectors.receive import socket_thread
from connectors.receive.received import Key
from connectors.receive.socket_thread import REFRESH_SECONDS, TURN_BYTES
from connectors.receive.sub_sockets import PEER_MESSAGES, SOCKET_MESSAGES, EndpointRefused, new_sub_socket
from connectors.receive.subscriber import Subscriber
from connectors.sources import Listening, Peer, SourceKey
from tests.support.handed_over import received

Context = zmq.Context[zmq.Socket[bytes]]


def _publisher(context: Context, endpoint: str | None = None) -> tuple[zmq.Socket[bytes], str]:
    socket = context.socket(zmq.XPUB)
    socket.setsockopt(zmq.SNDHWM, 1_000_000)
    if endpoint is None:
        port = socket.bind_to_random_port("tcp://127.0.0.1")
        return socket, f"tcp://127.0.0.1:{port}"
    socket.bind(endpoint)
    return socket, endpoint


async def _subscribed(socket: zmq.Socket[bytes]) -> None:
    assert await asyncio.to_thread(socket.poll, 60_000), "nobody subscribed"
    socket.recv()


@asynccontextmanager
async def _running(
    hand_over_bytes: int = 64 << 20, refused: Callable[[EndpointRefused], None] = lambda refusal: None
) -> AsyncIterator[Subscriber]:
    subscriber = Subscriber(hand_over_bytes=hand_over_bytes, refused=refused)
    subscriber.start()
    yield subscriber
    subscriber.stop(0.0)
    await subscriber.join(60.0)


def _message(seq: int, payload: bytes = b"payload") -> list[bytes]:
    return [b"kv-events", seq.to_bytes(8, "big"), payload]


def _with_topic(frames: Frames) -> list[bytes]:
    """Return frames as they were sent: well-formed messages come without their topic."""
    return [b"kv-events", *frames[1:]] if len(frames) == 3 and not frames[0] and frames[1] else list(frames)


def _connecting(context: Context, endpoint: str) -> zmq.Socket[bytes]:
    socket = context.socket(zmq.XPUB)
    socket.connect(endpoint)
    return socket


async def _take(subscriber: Subscriber, count: int) -> dict[SourceKey, list[list[bytes]]]:
    taken = await _take_any(subscriber, count)
    return {source: messages for source, messages in taken.items() if not isinstance(source, Peer)}


async def _take_any(subscriber: Subscriber, count: int) -> dict[Key, list[list[bytes]]]:
    taken: dict[Key, list[list[bytes]]] = {}

    async def until_enough() -> None:
        while sum(map(len, taken.values())) < count:
            arrived = await received(subscriber.hand_over)
            assert arrived is not None
            taken.setdefault(arrived.source, []).extend(map(_with_topic, arrived.messages))
            subscriber.hand_over.release(arrived.size)

    await asyncio.wait_for(until_enough(), 60)
    return taken


async def test_messages_of_several_sources_come_whole_and_in_order(context: Context) -> None:
    sockets = [_publisher(context) for _ in range(3)]
    async with _running() as subscriber:
        for rank, (socket, endpoint) in enumerate(sockets):
            subscriber.add(("r", rank), endpoint)
            await _subscribed(socket)
        before = time.time()
        sent: dict[SourceKey, list[list[bytes]]] = {
            ("r", rank): [_message(seq, bytes([rank]) * (seq % 50)) for seq in range(2000)]
            for rank in range(3)
        }
        for seq in range(2000):
            for rank, (socket, _) in enumerate(sockets):
                socket.send_multipart(sent["r", rank][seq])
        assert await _take(subscriber, 6000) == sent
        assert subscriber.hand_over.waiting_bytes == 0
        sockets[0][0].send_multipart(_message(9))
        arrived = await received(subscriber.hand_over)
        assert arrived is not None
        assert before <= arrived.received_at <= time.time()


WRONG: list[list[bytes]] = [
    [b"\xff\x01"],
    [b"", b"\x93"],
    [b"kv-events", bytes(8)],
    [b"t", (2).to_bytes(8, "big"), b"\x90", b"extra"],
    [b"t", (2).to_bytes(8, "big"), b"\x90", b"extra", b"more", b"most"],
    [b"t", b"\xf3" * 8, b"\x90"],
    [b"t", b"seven77", b"\x90"],
    [b"t", b"", b""],
]


async def test_messages_of_wrong_shape_leave_their_neighbours_whole(context: Context) -> None:
    """In one piece, and one at a time, where each ends what the socket has."""
    socket, endpoint = _publisher(context)
    messages = [_message(0)]
    for seq, wrong in enumerate(WRONG, 1):
        messages += [wrong, _message(seq)]
    async with _running() as subscriber:
        subscriber.add(("r", 0), endpoint)
        await _subscribed(socket)
        for message in messages:
            socket.send_multipart(message)
        assert (await _take(subscriber, len(messages)))["r", 0] == messages
        for message in messages:
            socket.send_multipart(message)
            assert (await _take(subscriber, 1))["r", 0] == [message]


async def test_large_frame_arrives_between_small_ones(context: Context) -> None:
    socket, endpoint = _publisher(context)
    messages = [_message(0), _message(1, bytes(50 << 20)), _message(2)]
    async with _running() as subscriber:
        subscriber.add(("r", 0), endpoint)
        await _subscribed(socket)
        for message in messages:
            socket.send_multipart(message)
        assert (await _take(subscriber, 3))["r", 0] == messages


async def test_a_source_that_crowds_is_left_unread_and_loses_nothing(context: Context) -> None:
    """Also while nobody takes anything, so that nobody can pause it: others find room."""
    socket, endpoint = _publisher(context)
    other, at = _publisher(context)
    bound = 16 << 20
    async with _running(hand_over_bytes=bound) as subscriber:
        subscriber.add(("r", 0), endpoint)
        await _subscribed(socket)
        sent = [_message(seq, bytes(1000)) for seq in range(20_000)]
        for message in sent:
            socket.send_multipart(message)
        await _until(lambda: 2 * subscriber.hand_over.waiting_bytes > bound)
        await asyncio.sleep(0.3)
        assert 2 * subscriber.hand_over.waiting_bytes <= bound + 2 * TURN_BYTES
        subscriber.add(("other", 0), at)
        await _subscribed(other)
        waiting = subscriber.hand_over.waiting_messages
        other.send_multipart(_message(0))
        await _until(lambda: subscriber.hand_over.waiting_messages == waiting + 1)
        assert not subscriber.hand_over.full
        taken = await _take(subscriber, len(sent) + 1)
        assert taken == {("r", 0): sent, ("other", 0): [_message(0)]}


async def test_busy_source_goes_on_while_others_come_and_go(
    context: Context, free_port: Callable[[], int]
) -> None:
    """How many messages an open socket may hold stays: libzmq may wait for good when that grows."""
    socket, endpoint = _publisher(context)
    nobody = f"tcp://127.0.0.1:{free_port()}"
    sent = [_message(seq, bytes(100)) for seq in range(20_000)]
    async with _running(hand_over_bytes=20_000) as subscriber:
        subscriber.add(("busy", 0), endpoint)
        await _subscribed(socket)
        for message in sent:
            socket.send_multipart(message)
        arrived = []
        for _ in range(3):
            for number in range(200):
                subscriber.add(("other", number), nobody)
            arrived += (await _take(subscriber, 2_000))["busy", 0]
            for number in range(200):
                subscriber.remove(("other", number))
            arrived += (await _take(subscriber, 2_000))["busy", 0]
        arrived += (await _take(subscriber, len(sent) - len(arrived)))["busy", 0]
        assert arrived == sent


async def test_one_source_comes_and_goes_without_the_other(context: Context) -> None:
    (first, first_endpoint), (second, second_endpoint) = _publisher(context), _publisher(context)
    async with _running() as subscriber:
        subscriber.add(("a", 0), first_endpoint)
        await _subscribed(first)
        subscriber.add(("b", 0), second_endpoint, topic="kv")
        await _subscribed(second)
        second.send_multipart([b"other", bytes(8), b"not subscribed"])
        second.send_multipart(_message(0))
        assert await _take(subscriber, 1) == {("b", 0): [_message(0)]}
        subscriber.remove(("b", 0))
        await _subscribed(second)  # the end of the subscription is a message, too
        second.send_multipart(_message(1))
        first.send_multipart(_message(7))
        assert await _take(subscriber, 1) == {("b", 0): [], ("a", 0): [_message(7)]}


async def test_engine_that_dies_and_comes_back_is_read_again(context: Context) -> None:
    (dying, dying_endpoint), (steady, steady_endpoint) = _publisher(context), _publisher(context)
    async with _running() as subscriber:
        subscriber.add(("dying", 0), dying_endpoint)
        subscriber.add(("steady", 0), steady_endpoint)
        await _subscribed(dying)
        await _subscribed(steady)
        dying.send_multipart(_message(5))
        assert await _take(subscriber, 1) == {("dying", 0): [_message(5)]}
        dying.close(0)
        steady.send_multipart(_message(6))
        assert await _take(subscriber, 1) == {("steady", 0): [_message(6)]}
        reborn = await _rebound(context, dying_endpoint)
        await _subscribed(reborn)
        reborn.send_multipart(_message(0))
        assert await _take(subscriber, 1) == {("dying", 0): [_message(0)]}


async def test_connected_says_whether_an_engine_is_there(context: Context) -> None:
    socket, endpoint = _publisher(context)
    async with _running() as subscriber:
        subscriber.add(("r", 0), endpoint)
        subscriber.add(("nobody", 0), "tcp://127.0.0.1:1")
        await _until(lambda: subscriber.connected(("r", 0)))
        assert not subscriber.connected(("nobody", 0))
        socket.close(0)
        await _until(lambda: not subscriber.connected(("r", 0)))
        reborn = await _rebound(context, endpoint)
        await _until(lambda: subscriber.connected(("r", 0)))
        subscriber.remove(("r", 0))
        await _until(lambda: not subscriber.connected(("r", 0)))
        reborn.close(0)


async def test_engines_that_connect_are_told_apart_by_topic(
    context: Context, free_port: Callable[[], int]
) -> None:
    endpoint = f"tcp://127.0.0.1:{free_port()}"
    listening = Listening(endpoint, 3)
    async with _running() as subscriber:
        subscriber.listen(listening)
        engines = {name: _connecting(context, endpoint) for name in (b"kv@a@m", b"kv@b@m")}
        for engine in engines.values():
            await _subscribed(engine)
        for seq in range(100):
            for topic, engine in engines.items():
                engine.send_multipart([topic, *_message(seq)[1:]])
        engines[b"kv@a@m"].send_multipart([b"kv@a@m", b"two frames"])
        taken = await _take_any(subscriber, 201)
        peers = {topic: Peer(listening, topic) for topic in engines}
        assert taken == {
            peers[b"kv@a@m"]: [
                *(_message(seq) for seq in range(100)),
                [b"kv@a@m", b"two frames"],
            ],
            peers[b"kv@b@m"]: [_message(seq) for seq in range(100)],
        }
        assert all(subscriber.connected(peer) for peer in peers.values())
        engines[b"kv@a@m"].close(0)
        await _until(lambda: not subscriber.connected(peers[b"kv@a@m"]))
        assert subscriber.connected(peers[b"kv@b@m"])


async def test_little_is_held_of_each_engine_that_connects(
    context: Context, free_port: Callable[[], int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """ZMQ's limit is for each of them."""
    _, endpoint = _publisher(context)
    limits: list[int] = []

    def noting(context: Context, topic: str, messages: int) -> zmq.Socket[bytes]:
        limits.append(messages)
        return new_sub_socket(context, topic, messages)

    monkeypatch.setattr(socket_thread, "new_sub_socket", noting)
    async with _running() as subscriber:
        subscriber.add(("r", 0), endpoint)
        subscriber.listen(Listening(f"tcp://127.0.0.1:{free_port()}", 0))
        await _until(lambda: len(limits) == 2)
    assert limits == [SOCKET_MESSAGES, PEER_MESSAGES]


async def test_engine_that_connects_again_is_connected(
    context: Context, free_port: Callable[[], int]
) -> None:
    """Its new connection, known by its messages, counts whichever is noticed first."""
    endpoint = f"tcp://127.0.0.1:{free_port()}"
    listening = Listening(endpoint, 0)
    peer = Peer(listening, b"kv-events")
    async with _running() as subscriber:
        subscriber.listen(listening)
        first = _connecting(context, endpoint)
        await _subscribed(first)
        first.send_multipart(_message(0))
        await _take_any(subscriber, 1)
        second = _connecting(context, endpoint)
        await _subscribed(second)
        first.close(0)
        second.send_multipart(_message(1))
        await _take_any(subscriber, 1)
        await asyncio.sleep(REFRESH_SECONDS * 1.5)
        assert subscriber.connected(peer)
        second.close(0)
        await _until(lambda: not subscriber.connected(peer))


def _old_protocol(*frames: bytes) -> bytes:
    """Return what a peer of ZMQ's first protocol sends: an empty identity, and one message."""
    lengths = [bytes([1 + len(frame), frame is not frames[-1]]) for frame in frames]
    return b"\x01\x00" + b"".join(length + frame for length, frame in zip(lengths, frames, strict=True))


async def test_whatever_bytes_come_to_the_port_engines_beside_are_received(
    context: Context, free_port: Callable[[], int]
) -> None:
    endpoint = f"tcp://127.0.0.1:{free_port()}"
    listening = Listening(endpoint, 0)
    rng = random.Random(7)
    old = [b"old", b"\0" * 8, b"payload"]
    async with _running() as subscriber:
        subscriber.listen(listening)
        engine = _connecting(context, endpoint)
        await _subscribed(engine)
        for garbage in (
            _old_protocol(*old),
            b"GET / HTTP/1.1\r\n\r\n",
            b"\xff" + bytes(8) + b"\x7f\x03\0NULL" + bytes(48) + b"\x02" + b"\x7f" * 8,
            *(rng.randbytes(200) for _ in range(30)),
        ):
            _, writer = await asyncio.open_connection("127.0.0.1", int(endpoint.rpartition(":")[2]))
            writer.write(garbage)
            await writer.drain()
            writer.close()
        engine.send_multipart(_message(0))
        seen: dict[Key, list[list[bytes]]] = {}
        while not {Peer(listening, b"kv-events"), Peer(listening, b"old")} <= seen.keys():
            for key, messages in (await _take_any(subscriber, 1)).items():
                seen.setdefault(key, []).extend(messages)
        assert seen[Peer(listening, b"kv-events")] == [_message(0)]
        assert seen[Peer(listening, b"old")] == [[b"kv-events", *old[1:]]]
        assert subscriber.connected(Peer(listening, b"kv-events"))
        assert not subscriber.connected(Peer(listening, b"old"))


async def test_address_that_is_taken_ends_the_subscriber(context: Context) -> None:
    _, endpoint = _publisher(context)
    subscriber = Subscriber(hand_over_bytes=1 << 20, refused=lambda refusal: None)
    subscriber.start()
    subscriber.listen(Listening(endpoint, 0))
    with pytest.raises(EndpointRefused, match=f"cannot listen on {endpoint}: Address already in use"):
        await asyncio.wait_for(received(subscriber.hand_over), 60)
    await subscriber.join(60.0)


async def test_full_hand_over_stops_in_the_middle_of_a_turn(context: Context) -> None:
    """Whatever many sockets hold, no more than one of them goes beyond the bound."""
    sockets = [_publisher(context) for _ in range(12)]
    bound = 1 << 20
    async with _running(hand_over_bytes=bound) as subscriber:
        for number, (socket, endpoint) in enumerate(sockets):
            subscriber.add(("r", number), endpoint)
            await _subscribed(socket)
        sent = [_message(seq, bytes(50_000)) for seq in range(60)]
        for socket, _ in sockets:
            for message in sent:
                socket.send_multipart(message)
        await _until(lambda: subscriber.hand_over.full)
        await asyncio.sleep(0.3)
        assert bound <= subscriber.hand_over.waiting_bytes <= bound + TURN_BYTES
        taken = await _take(subscriber, 12 * 60)
        assert not subscriber.hand_over.full
    assert taken == {("r", number): sent for number in range(12)}


async def test_removed_source_ends_with_what_its_socket_held(context: Context) -> None:
    socket, endpoint = _publisher(context)
    async with _running() as subscriber:
        subscriber.add(("r", 0), endpoint)
        await _subscribed(socket)
        sent = [_message(seq) for seq in range(3000)]
        for message in sent:
            socket.send_multipart(message)
        await _until(lambda: subscriber.hand_over.waiting_messages == len(sent))
        subscriber.remove(("r", 0))
        taken: list[list[bytes]] = []
        while True:
            arrived = await asyncio.wait_for(received(subscriber.hand_over), 60)
            assert arrived is not None
            taken += map(_with_topic, arrived.messages)
            if arrived.last:
                break
    assert taken == sent


async def test_endpoint_that_cannot_be_used_is_refused_alone(context: Context) -> None:
    refusals: list[EndpointRefused] = []
    socket, endpoint = _publisher(context)
    async with _running(refused=refusals.append) as subscriber:
        subscriber.add(("bad", 1), "tcp://127.0.0.1:notaport")
        subscriber.add(("good", 0), endpoint)
        await _subscribed(socket)
        socket.send_multipart(_message(0))
        assert await _take(subscriber, 1) == {("good", 0): [_message(0)]}
        await _until(lambda: bool(refusals))
    (refusal,) = refusals
    assert refusal.source == ("bad", 1)
    assert "tcp://127.0.0.1:notaport of bad/1" in str(refusal)


async def test_stop_hands_over_what_the_sockets_hold(context: Context) -> None:
    socket, endpoint = _publisher(context)
    subscriber = Subscriber(hand_over_bytes=1 << 16, refused=lambda refusal: None)
    subscriber.start()
    subscriber.add(("r", 0), endpoint)
    await _subscribed(socket)
    sent = [_message(seq, bytes(1000)) for seq in range(900)]  # a socket holds 1,000
    for message in sent:
        socket.send_multipart(message)
    await _until(lambda: 2 * subscriber.hand_over.waiting_bytes > 1 << 16)
    await asyncio.sleep(3.0)  # for the rest to cross the loopback, where nobody sees it
    subscriber.stop(10.0)
    taken: list[Frames] = []
    while (arrived := await asyncio.wait_for(received(subscriber.hand_over), 60)) is not None:
        taken += arrived.messages
        subscriber.hand_over.release(arrived.size)
    await subscriber.join(60.0)
    assert [_with_topic(frames) for frames in taken] == sent


async def test_stop_hands_over_what_the_socket_of_a_paused_source_holds(context: Context) -> None:
    socket, endpoint = _publisher(context)
    sent = [_message(seq) for seq in range(300)]
    async with _running() as subscriber:
        subscriber.add(("paused", 0), endpoint)
        await _subscribed(socket)
        subscriber.pause(("paused", 0))
        await asyncio.sleep(1.0)
        for message in sent:
            socket.send_multipart(message)
        await asyncio.sleep(3.0)  # nobody sees what the socket holds
        assert subscriber.hand_over.waiting_messages == 0
        subscriber.stop(10.0)
        assert (await _take(subscriber, len(sent)))["paused", 0] == sent


async def test_stop_gives_up_in_time_when_nobody_takes_anything(context: Context) -> None:
    socket, endpoint = _publisher(context)
    subscriber = Subscriber(hand_over_bytes=1 << 16, refused=lambda refusal: None)
    subscriber.start()
    subscriber.add(("r", 0), endpoint)
    await _subscribed(socket)
    for seq in range(10_000):
        socket.send_multipart(_message(seq, bytes(1000)))
    await _until(lambda: 2 * subscriber.hand_over.waiting_bytes > 1 << 16)
    began = time.monotonic()
    subscriber.stop(0.3)
    await subscriber.join(60.0)
    assert time.monotonic() - began < 300
    assert 0 < subscriber.hand_over.waiting_messages < 10_000


async def _rebound(context: Context, endpoint: str) -> zmq.Socket[bytes]:
    deadline = time.monotonic() + 60
    while True:
        try:
            return _publisher(context, endpoint)[0]
        except zmq.ZMQError:
            assert time.monotonic() < deadline
            await asyncio.sleep(0.05)


async def _until(true: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not true():
        assert time.monotonic() < deadline
        await asyncio.sleep(0.01)
