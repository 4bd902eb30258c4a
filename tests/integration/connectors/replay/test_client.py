"""Replays over real sockets: every layout and every way in which an answer goes wrong."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from itertools import count
from typing import Literal

import pytest
import zmq

from connectors.replay import client
from connectors.replay.client import CHUNK_MESSAGES, Replayer
from connectors.replay.protocol import END_SEQUENCE, MALFORMED, parse_answer, request
from pipeline.simulator.publisher import Publisher, PublisherSettings

ANYWHERE = "tcp://127.0.0.1:0"
TIMEOUT = 60.0
SOON = 0.4
"""For who never answers."""
PAUSE = 4.0
"""Longer than any between two messages of an answer."""
Frames = list[bytes]


@pytest.fixture
def replayer() -> Iterator[Replayer]:
    """One that waits, where the answer has to end by itself."""
    replayer = Replayer(timeout_seconds=TIMEOUT)
    yield replayer
    replayer.close()


@pytest.fixture
def watchful() -> Iterator[Replayer]:
    """One that takes a pause for the end."""
    replayer = Replayer(timeout_seconds=PAUSE)
    yield replayer
    replayer.close()


class Router:
    """Answers one request at a time with what `answer` sends."""

    def __init__(
        self, context: zmq.Context[zmq.Socket[bytes]], answer: Callable[[Callable[[Frames], None]], None]
    ) -> None:
        self._socket = context.socket(zmq.ROUTER)
        self._socket.setsockopt(zmq.SNDHWM, 0)
        self._socket.bind(ANYWHERE)
        self.endpoint = bytes(self._socket.getsockopt(zmq.LAST_ENDPOINT)).rstrip(b"\0").decode()
        self._answer = answer
        self.requests: list[Frames] = []
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        while self._socket.poll(60_000):
            identity, *frames = self._socket.recv_multipart()
            self.requests.append(frames)
            if frames == [b"stop"]:
                break
            self._answer(lambda answer, to=identity: self._socket.send_multipart([to, *answer]))  # type: ignore[misc]
        self._socket.close(0)

    def stop(self, context: zmq.Context[zmq.Socket[bytes]]) -> None:
        with context.socket(zmq.DEALER) as dealer:
            dealer.connect(self.endpoint)
            dealer.send(b"stop")
            self._thread.join(60)


async def _replay(
    replayer: Replayer,
    endpoint: str,
    first: int = 0,
    most: int | None = None,
    *,
    waits: float | None = None,
) -> tuple[str, list[tuple[int, bytes]]]:
    """Ask for what a connected engine has; `waits`: seconds for an answer, not for the connection."""
    found: list[tuple[int, bytes]] = []

    async def take(batches: list[tuple[int, bytes]]) -> bool:
        found.extend(batches)
        await asyncio.sleep(0)
        return most is None or len(found) < most

    connection = await asyncio.wait_for(replayer.connect(endpoint), 60)
    if connection is None:
        return "unreachable", []
    if waits is not None:
        connection._timeout_seconds = waits
    try:
        outcome = await asyncio.wait_for(connection.replay(first, take), 60)
    finally:
        # The context of the replayer waits for it.
        connection.close()
    return outcome, found


async def test_an_answer_without_end_is_over_after_what_no_engine_keeps(
    context: zmq.Context[zmq.Socket[bytes]], replayer: Replayer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client, "MAX_ANSWER_MESSAGES", 2_000)
    flooded = threading.Event()

    def flood(answer: Callable[[Frames], None]) -> None:
        for seq in range(200_000):
            if flooded.is_set():
                return
            answer([b"", _number(seq), b"payload"])

    router = Router(context, flood)
    outcome, found = await _replay(replayer, router.endpoint)
    flooded.set()
    router.stop(context)
    assert outcome == "endless"
    assert found == [(seq, b"payload") for seq in range(len(found))]
    assert 2_000 <= len(found) < 2_000 + CHUNK_MESSAGES


def _number(seq: int) -> bytes:
    return seq.to_bytes(8, "big")


@pytest.mark.parametrize(
    ("frames", "meaning"),
    [
        ([b"", _number(5), b"payload"], (5, b"payload")),
        ([b"", b"topic", _number(5), b"payload"], (5, b"payload")),
        ([b"", END_SEQUENCE, b""], None),
        ([b"", b"", END_SEQUENCE, b""], None),
        ([b"", END_SEQUENCE, b"payload"], None),  # ATOM: the numbers that it keeps
        ([b""], MALFORMED),
        ([], MALFORMED),
        ([b"", b"short", b"payload"], MALFORMED),
    ],
)
def test_frames_are_read_from_the_end(frames: Frames, meaning: tuple[int, bytes] | None) -> None:
    assert parse_answer(frames) == meaning


def test_request_has_an_empty_frame_before_the_number() -> None:
    assert request(258) == [b"", b"\0\0\0\0\0\0\1\2"]


@pytest.mark.parametrize("layout", [2, 3])
async def test_answer_is_what_the_engine_published_from_there_on(
    context: zmq.Context[zmq.Socket[bytes]], replayer: Replayer, layout: Literal[2, 3]
) -> None:
    settings = PublisherSettings(ANYWHERE, ANYWHERE, topic="kv@pod", replay_frames=layout)
    with Publisher(settings, context) as engine:
        payloads = [b"%d" % seq * 100 for seq in range(5 * CHUNK_MESSAGES)]
        for payload in payloads:
            engine.publish(payload)
        assert engine.replay_endpoint is not None
        assert await _replay(replayer, engine.replay_endpoint) == ("end", list(enumerate(payloads)))
        assert await _replay(replayer, engine.replay_endpoint, 1000) == (
            "end",
            list(enumerate(payloads))[1000:],
        )
        assert await _replay(replayer, engine.replay_endpoint, 9_999) == ("end", [])


async def test_answer_without_an_end_is_over_after_the_timeout(
    context: zmq.Context[zmq.Socket[bytes]], watchful: Replayer
) -> None:
    settings = PublisherSettings(ANYWHERE, ANYWHERE, replay_end=False)
    with Publisher(settings, context) as engine:
        for seq in range(10):
            engine.publish(b"%d" % seq)
        assert engine.replay_endpoint is not None
        outcome, found = await _replay(watchful, engine.replay_endpoint)
    assert (outcome, [seq for seq, _ in found]) == ("timeout", list(range(10)))


async def test_slow_answer_is_waited_for_as_long_as_it_comes(
    context: zmq.Context[zmq.Socket[bytes]], watchful: Replayer
) -> None:
    def slowly(send: Callable[[Frames], None]) -> None:
        for seq in range(6):
            time.sleep(PAUSE / 4)
            send([b"", _number(seq), b"x"])
        send([b"", END_SEQUENCE, b""])

    router = Router(context, slowly)
    outcome, found = await _replay(watchful, router.endpoint)
    router.stop(context)
    assert (outcome, [seq for seq, _ in found]) == ("end", list(range(6)))


async def test_engine_that_trickles_for_ever_is_left(
    context: zmq.Context[zmq.Socket[bytes]], watchful: Replayer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("connectors.replay.client.WAITS", 1)
    left = threading.Event()

    def for_ever(send: Callable[[Frames], None]) -> None:
        for seq in count():
            if left.wait(PAUSE / 20):
                return
            send([b"", _number(seq), b"x"])

    router = Router(context, for_ever)
    outcome, found = await _replay(watchful, router.endpoint)
    left.set()
    router.stop(context)
    assert outcome == "timeout"
    assert [seq for seq, _ in found] == list(range(len(found)))
    assert len(found) >= 2


async def test_engine_that_never_answers(context: zmq.Context[zmq.Socket[bytes]], replayer: Replayer) -> None:
    router = Router(context, lambda send: None)
    outcome = await _replay(replayer, router.endpoint, waits=SOON)
    router.stop(context)
    assert outcome == ("timeout", [])
    assert router.requests[0] == [b"", _number(0)]


async def test_nobody_there_is_unreachable() -> None:
    hasty = Replayer(timeout_seconds=SOON)
    outcomes = [await _replay(hasty, endpoint) for endpoint in ("tcp://127.0.0.1:1", "no endpoint")]
    hasty.close()
    assert outcomes == [("unreachable", [])] * 2


async def test_answer_that_is_no_longer_wanted_is_left(
    context: zmq.Context[zmq.Socket[bytes]], replayer: Replayer
) -> None:
    settings = PublisherSettings(ANYWHERE, ANYWHERE)
    with Publisher(settings, context) as engine:
        for _ in range(20 * CHUNK_MESSAGES):
            engine.publish(b"x")
        assert engine.replay_endpoint is not None
        outcome, found = await _replay(replayer, engine.replay_endpoint, most=10)
    assert outcome == "enough"
    # What was there when the last of those that were wanted came, a turn at most; not the rest.
    assert len(found) < 10 + CHUNK_MESSAGES


async def test_late_answer_is_not_taken_for_that_of_a_later_request(
    context: zmq.Context[zmq.Socket[bytes]], replayer: Replayer
) -> None:
    first = True
    left = threading.Event()

    def late(send: Callable[[Frames], None]) -> None:
        nonlocal first
        if first:
            first = False
            left.wait(60)
            send([b"", _number(0), b"old"])
        send([b"", _number(1), b"new"])
        send([b"", END_SEQUENCE, b""])

    router = Router(context, late)
    early = await _replay(replayer, router.endpoint, waits=SOON)
    asyncio.get_running_loop().call_later(0.2, left.set)
    later = await _replay(replayer, router.endpoint)
    router.stop(context)
    assert (early, later) == (("timeout", []), ("end", [(1, b"new")]))
