"""The sockets: what a subscriber and a replay client of a real engine would see."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import pytest
import zmq

from pipeline.simulator.publisher import END_SEQUENCE, Publisher, PublisherSettings, offset_endpoint

ANY = PublisherSettings("tcp://127.0.0.1:0", "tcp://127.0.0.1:0", topic="kv@sim-0@model")
TOPIC = b"kv@sim-0@model"


@pytest.fixture
def context() -> Iterator[zmq.Context[zmq.Socket[bytes]]]:
    with zmq.Context() as context:
        yield context


@contextmanager
def _socket(context: zmq.Context[zmq.Socket[bytes]], kind: int, endpoint: str) -> Iterator[zmq.Socket[bytes]]:
    with context.socket(kind) as socket:
        socket.setsockopt(zmq.LINGER, 0)
        socket.setsockopt(zmq.RCVTIMEO, 60_000)
        if kind == zmq.SUB:
            socket.setsockopt(zmq.SUBSCRIBE, b"")
        socket.connect(endpoint)
        yield socket


def _replayed(dealer: zmq.Socket[bytes], first: int, count: int) -> list[list[bytes]]:
    dealer.send_multipart([b"", first.to_bytes(8, "big")])
    return [dealer.recv_multipart() for _ in range(count)]


def _sequence(number: int) -> bytes:
    return number.to_bytes(8, "big")


def test_batches_are_three_frames_from_sequence_0(context: zmq.Context[zmq.Socket[bytes]]) -> None:
    with Publisher(ANY, context) as publisher, _socket(context, zmq.SUB, publisher.endpoint) as subscriber:
        assert publisher.last_sequence is None
        assert publisher.wait_subscribers(1, 60)
        assert [publisher.publish(payload) for payload in (b"a", b"b")] == [0, 1]
        assert subscriber.recv_multipart() == [TOPIC, _sequence(0), b"a"]
        assert subscriber.recv_multipart() == [TOPIC, _sequence(1), b"b"]
        assert (publisher.last_sequence, publisher.published) == (1, 2)


def test_subscribers_are_counted_as_they_come_and_go(context: zmq.Context[zmq.Socket[bytes]]) -> None:
    with Publisher(ANY, context) as publisher:
        assert not publisher.wait_subscribers(1, 0.05)
        with (
            _socket(context, zmq.SUB, publisher.endpoint),
            _socket(context, zmq.SUB, publisher.endpoint),
        ):
            assert publisher.wait_subscribers(2, 60)
        for _ in range(100):
            if publisher.subscribers == 0:
                break
            publisher._pub.poll(50)
        assert publisher.subscribers == 0


@pytest.mark.parametrize(("frames", "head", "end"), [(2, [b""], [b""]), (3, [b"", TOPIC], [b"", b""])])
def test_replay_answers_in_the_layout_of_its_era(
    frames: int, head: list[bytes], end: list[bytes], context: zmq.Context[zmq.Socket[bytes]]
) -> None:
    with Publisher(replace(ANY, replay_frames=frames), context) as publisher:
        for number in range(5):
            publisher.publish(b"%d" % number)
        with _socket(context, zmq.DEALER, publisher.replay_endpoint or "") as dealer:
            assert _replayed(dealer, 2, 4) == [
                *([*head, _sequence(number), b"%d" % number] for number in (2, 3, 4)),
                [*end, END_SEQUENCE, b""],
            ]
            assert _replayed(dealer, 99, 1) == [[*end, END_SEQUENCE, b""]]


def test_replay_holds_the_newest_batches_and_all_of_a_long_buffer(
    context: zmq.Context[zmq.Socket[bytes]],
) -> None:
    with Publisher(replace(ANY, buffer_steps=6000), context) as publisher:
        for number in range(7000):
            publisher.publish(b"%d" % number)
        with _socket(context, zmq.DEALER, publisher.replay_endpoint or "") as dealer:
            answer = _replayed(dealer, 0, 6001)
    assert [int.from_bytes(frames[-2], "big") for frames in answer[:-1]] == list(range(1000, 7000))


def test_a_request_without_the_empty_frame_is_ignored(context: zmq.Context[zmq.Socket[bytes]]) -> None:
    with (
        Publisher(ANY, context) as publisher,
        _socket(context, zmq.DEALER, publisher.replay_endpoint or "") as dealer,
    ):
        dealer.send_multipart([_sequence(0)])
        assert not dealer.poll(150)
        assert len(_replayed(dealer, 0, 1)) == 1


def test_replay_faults(context: zmq.Context[zmq.Socket[bytes]]) -> None:
    faulty = replace(ANY, replay_end=False, replay_holes=frozenset({1}))
    with Publisher(faulty, context) as publisher:
        for number in range(3):
            publisher.publish(b"%d" % number)
        with _socket(context, zmq.DEALER, publisher.replay_endpoint or "") as dealer:
            assert [frames[-1] for frames in _replayed(dealer, 0, 2)] == [b"0", b"2"]
            assert not dealer.poll(150)


def test_dropped_batches_are_only_in_the_replay(context: zmq.Context[zmq.Socket[bytes]]) -> None:
    with Publisher(ANY, context) as publisher, _socket(context, zmq.SUB, publisher.endpoint) as subscriber:
        publisher.wait_subscribers(1, 60)
        publisher.publish(b"0")
        publisher.drop_next(2)
        for number in (1, 2, 3):
            publisher.publish(b"%d" % number)
        assert publisher.skip() == 4
        publisher.publish(b"5")
        assert [subscriber.recv_multipart()[1] for _ in range(3)] == [_sequence(n) for n in (0, 3, 5)]
        with _socket(context, zmq.DEALER, publisher.replay_endpoint or "") as dealer:
            assert [frames[-1] for frames in _replayed(dealer, 0, 6)] == [b"0", b"1", b"2", b"3", b"5", b""]


def test_a_restart_begins_at_0_with_an_empty_buffer(context: zmq.Context[zmq.Socket[bytes]]) -> None:
    with Publisher(ANY, context) as publisher, _socket(context, zmq.SUB, publisher.endpoint) as subscriber:
        publisher.wait_subscribers(1, 60)
        publisher.publish(b"old")
        publisher.restart()
        assert publisher.publish(b"new") == 0
        assert [subscriber.recv_multipart()[1:] for _ in range(2)] == [
            [_sequence(0), b"old"],
            [_sequence(0), b"new"],
        ]
        with _socket(context, zmq.DEALER, publisher.replay_endpoint or "") as dealer:
            assert [frames[-1] for frames in _replayed(dealer, 0, 2)] == [b"new", b""]


def test_a_publisher_can_connect_to_a_subscriber_that_binds(
    context: zmq.Context[zmq.Socket[bytes]],
) -> None:
    with context.socket(zmq.SUB) as subscriber:
        subscriber.setsockopt(zmq.SUBSCRIBE, b"")
        subscriber.setsockopt(zmq.RCVTIMEO, 60_000)
        port = subscriber.bind_to_random_port("tcp://127.0.0.1")
        settings = PublisherSettings(f"tcp://127.0.0.1:{port - 1}", rank=1, bind=False)
        with Publisher(settings, context) as publisher:
            for _ in range(100):
                subscriber.poll(50)  # a socket that binds sends its subscriptions when it is used
                if publisher.subscribers:
                    break
            assert publisher.wait_subscribers(1, 0)
            publisher.publish(b"x")
            assert subscriber.recv_multipart() == [b"", _sequence(0), b"x"]


def test_lossless_publishing_waits_for_a_slow_subscriber(context: zmq.Context[zmq.Socket[bytes]]) -> None:
    count = 4000
    seen = []
    with (
        Publisher(replace(ANY, lossless=True, replay_endpoint=None), context) as publisher,
        context.socket(zmq.SUB) as subscriber,
    ):
        subscriber.setsockopt(zmq.RCVHWM, 10)
        subscriber.setsockopt(zmq.RCVTIMEO, 60_000)
        subscriber.setsockopt(zmq.SUBSCRIBE, b"")
        subscriber.connect(publisher.endpoint)
        assert publisher.wait_subscribers(1, 60)

        def read() -> None:
            time.sleep(0.3)
            seen.extend(subscriber.recv_multipart()[1] for _ in range(count))

        reader = threading.Thread(target=read)
        reader.start()
        for _ in range(count):
            publisher.publish(bytes(20_000))
        reader.join()
    assert seen == [_sequence(number) for number in range(count)]


def test_an_address_in_use_is_told(context: zmq.Context[zmq.Socket[bytes]]) -> None:
    with Publisher(ANY, context) as publisher, pytest.raises(OSError, match=r"cannot listen on tcp://"):
        Publisher(replace(ANY, endpoint=publisher.endpoint), context)


def test_ranks_have_ports_of_their_own() -> None:
    assert offset_endpoint("tcp://127.0.0.1:5557", 3) == "tcp://127.0.0.1:5560"
    assert offset_endpoint("inproc://events", 2) == "inproc://events_dp2"
    assert offset_endpoint("ipc:///tmp/events", 0) == "ipc:///tmp/events"
    assert offset_endpoint("ipc:///tmp/events", 1) == "ipc:///tmp/events_dp1"


def test_after_a_stop_nobody_waits_for_a_subscriber_that_takes_nothing() -> None:
    stopped, context = threading.Event(), zmq.Context()
    publisher = Publisher(replace(ANY, lossless=True), context, stopped)

    def publish() -> None:
        while not stopped.is_set():
            publisher.publish(bytes(50_000))

    with zmq.Context() as other, _socket(other, zmq.SUB, publisher.endpoint):
        assert publisher.wait_subscribers(1, 60)
        thread = threading.Thread(target=publish, daemon=True)
        thread.start()
        published = -1
        while published != publisher.published:  # until it waits for room
            published = publisher.published
            time.sleep(1.0)
        stopped.set()
        thread.join(40.0)
        assert not thread.is_alive()
        began = time.monotonic()
        publisher.close()
        context.term()
        assert time.monotonic() - began < 40.0
