"""Streams that miss something, on real PUB and ROUTER sockets: what is published is what the engine did."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable, Iterable
from typing import Any, Literal

import pytest
import zmq

from connectors.normalise.normaliser import Normaliser
from connectors.order.sequence import StoredPosition, fingerprint_of
from connectors.order.stream import SourceStream
from connectors.receive.subscriber import Subscriber
from connectors.replay.requests import ReplayRequests
from connectors.sources import Source, SourceKey
from schemas.events import Batch, Closed, Event, EventsRecord, Gap, Opened
from schemas.settings import Connector
from tests.support.engines import ANYWHERE, Context, RememberingEngine
from tests.support.handed_over import received

Layout = Literal[2, 3]


def _told(batch: Batch) -> Any:
    return batch.seq, batch.ts, batch.events, batch.engine_events


def expected(engine: RememberingEngine, life: int = -1, without: Iterable[int] = ()) -> list[Any]:
    """What the log has to say of a life."""
    normaliser = Normaliser(max_frame_bytes=1 << 24)
    batches = [
        normaliser.normalise(payload, seq=seq, received_at=0.0)
        for seq, payload in engine.lives[life].items()
        if seq not in set(without)
    ]
    return [_told(batch) for batch in batches]


class Reader:
    """Subscriber, stream and replays of one source; what would go to Kafka stays here."""

    def __init__(self, engine: RememberingEngine, resume: StoredPosition | None, **settings: Any) -> None:
        publisher = engine.publisher
        replay_endpoint = settings.pop("replay_endpoint", publisher.replay_endpoint)
        source = Source("r", 0, "m", "t", "d", publisher.endpoint, replay_endpoint)
        self.settings = Connector(**{"linger_seconds": 0.0, "replay_timeout_seconds": 60.0, **settings})
        self.records: list[EventsRecord] = []
        self.heard = 0
        """Messages that came over the event stream."""
        self.stream = SourceStream(source, self.settings, time.time, resume=resume)
        self.streams: dict[SourceKey, SourceStream] = {source.key: self.stream}
        self._subscriber = Subscriber(hand_over_bytes=1 << 26, refused=lambda refusal: None)
        self._replay_requests = ReplayRequests(
            self.streams,
            timeout_seconds=self.settings.replay_timeout_seconds,
            publish=self.records.extend,
            room=lambda: asyncio.sleep(0),
        )
        self._subscriber.start()
        self._subscriber.add(source.key, source.endpoint)
        self._tasks = [asyncio.create_task(self._pump()), asyncio.create_task(self._tick())]
        self._replay_requests.start()

    async def stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        await self._replay_requests.stop()
        self._subscriber.stop(0)
        await self._subscriber.join(60)

    async def _pump(self) -> None:
        while (arrived := await received(self._subscriber.hand_over)) is not None:
            messages = list(arrived.messages)
            self.records += self.stream.feed_all(messages, arrived.received_at)
            self.heard += len(messages)
            self._replay_requests.send_wanted(self.stream)
            self._subscriber.hand_over.release(arrived.size)

    async def _tick(self) -> None:
        while True:
            await asyncio.sleep(0.05)
            self.records += self.stream.look(time.time(), connected=True)

    @property
    def batches(self) -> list[Batch]:
        return [batch for record in self.records for batch in record.batches if batch.seq is not None]

    @property
    def notices(self) -> list[Event]:
        batches = [batch for record in self.records for batch in record.batches]
        return [event for batch in batches if batch.seq is None for event in batch.events]

    def life(self, number: int) -> list[Any]:
        """What was published of one incarnation, counted from 0."""
        incarnations = sorted({record.incarnation for record in self.records})
        assert [record.incarnation for record in self.records] == sorted(
            record.incarnation for record in self.records
        )
        return [
            _told(batch)
            for record in self.records
            if record.incarnation == incarnations[number]
            for batch in record.batches
            if batch.seq is not None
        ]

    async def until(self, enough: Callable[[], bool], seconds: float = 60.0) -> None:
        deadline = time.monotonic() + seconds
        while not enough():
            assert time.monotonic() < deadline, (self.notices, [batch.seq for batch in self.batches][-20:])
            await asyncio.sleep(0.01)


@contextlib.asynccontextmanager
async def reading(
    engine: RememberingEngine, resume: StoredPosition | None = None, **settings: Any
) -> AsyncIterator[Reader]:
    reader = Reader(engine, resume, **settings)
    try:
        yield reader
    finally:
        await reader.stop()
        engine.publisher.close()


async def _subscribed(engine: RememberingEngine) -> None:
    assert await asyncio.to_thread(engine.publisher.wait_subscribers)


@pytest.mark.parametrize("layout", [2, 3])
async def test_idle_engine_has_a_past(context: Context, layout: Layout) -> None:
    engine = RememberingEngine(context, replay_frames=layout)
    engine.publish(700)
    async with reading(engine) as reader:
        await reader.until(lambda: len(reader.batches) >= 700)
    assert reader.life(0) == expected(engine)
    assert all(batch.replayed for batch in reader.batches)
    assert reader.notices == [Opened(0, True, engine.publisher.endpoint)]


@pytest.mark.parametrize("layout", [2, 3])
async def test_late_joiner_gets_the_beginning_and_the_lost_ones(context: Context, layout: Layout) -> None:
    engine = RememberingEngine(context, replay_frames=layout)
    engine.publish(300)
    async with reading(engine) as reader:
        await _subscribed(engine)
        for _ in range(10):
            engine.publish(20)
            engine.publish(5, lost=True)
            await asyncio.sleep(0.01)
        engine.publish()
        await reader.until(lambda: len(reader.batches) >= 551)
    assert reader.life(0) == expected(engine)
    assert reader.notices == [Opened(0, True, engine.publisher.endpoint)]
    assert reader.stream.counts.batches == 551
    assert 350 <= reader.stream.counts.replayed < 551


async def test_lost_end_is_found_without_traffic(context: Context) -> None:
    engine = RememberingEngine(context)
    async with reading(engine, tail_seconds=0.3) as reader:
        await _subscribed(engine)
        engine.publish(3)
        await reader.until(lambda: len(reader.batches) == 3)
        engine.publish(2, lost=True)
        await reader.until(lambda: len(reader.batches) == 5)
    assert reader.life(0) == expected(engine)
    assert [batch.replayed for batch in reader.batches[3:]] == [True, True]


async def test_what_was_never_encoded_is_a_gap_of_its_own_and_costs_nothing_else(
    context: Context,
) -> None:
    engine = RememberingEngine(context)
    async with reading(engine) as reader:
        await _subscribed(engine)
        for _ in range(4):
            engine.publish(10)
            engine.publisher.skip()
        engine.publish(10)
        await reader.until(lambda: len(reader.batches) == 50)
    assert reader.life(0) == expected(engine)
    assert reader.notices[1:] == [Gap(seq, seq, "replay_holes") for seq in (10, 21, 32, 43)]


async def test_holes_and_a_missing_end(context: Context) -> None:
    holes = frozenset({3, 4, 50, 99, 120})
    engine = RememberingEngine(context)
    engine.publish(100)
    router = context.socket(zmq.ROUTER)
    router.bind(ANYWHERE)
    endpoint = bytes(router.getsockopt(zmq.LAST_ENDPOINT)).rstrip(b"\0").decode()
    async with reading(engine, replay_endpoint=endpoint, replay_timeout_seconds=2.0) as reader:
        await _subscribed(engine)
        engine.publish(50)
        # Answered before 120 is here, it would be a hole like the others.
        await reader.until(lambda: reader.heard == 50)
        while len(reader.batches) < 146:
            assert await asyncio.to_thread(router.poll, 60_000), reader.notices
            identity, _, first = router.recv_multipart()
            for seq in range(int.from_bytes(first, "big"), 150):
                if seq not in holes:
                    router.send_multipart([identity, b"", seq.to_bytes(8, "big"), engine.lives[0][seq]])
            await asyncio.sleep(0.1)
    router.close(0)
    assert reader.life(0) == expected(engine, without=holes - {120}), "120 came live"
    assert reader.notices[1:] == [
        Gap(3, 4, "replay_holes"),
        Gap(50, 50, "replay_holes"),
        Gap(99, 99, "replay_holes"),
    ]


async def test_buffer_that_does_not_reach_back(context: Context) -> None:
    engine = RememberingEngine(context, buffer_steps=50)
    async with reading(engine) as reader:
        await _subscribed(engine)
        engine.publish(20)
        await reader.until(lambda: len(reader.batches) == 20)
        engine.publish(80, lost=True)
        engine.publish(20)
        await reader.until(lambda: len(reader.batches) == 70)
    assert reader.life(0) == expected(engine, without=range(20, 70))
    assert reader.notices[1:] == [Gap(20, 69, "replay_truncated")]


@pytest.mark.parametrize("seen", [0, 30])
async def test_restarted_engine_that_is_further_on_already(context: Context, seen: int) -> None:
    """The next batch that is seen could be one of the old life, behind a gap."""
    engine = RememberingEngine(context)
    async with reading(engine) as reader:
        await _subscribed(engine)
        engine.publish(10)
        await reader.until(lambda: len(reader.batches) == 10)
        engine.restart()
        engine.publish(40, lost=True)
        engine.publish(seen or 1)
        await reader.until(lambda: len(reader.batches) == 50 + (seen or 1))
    assert reader.life(0) == expected(engine, 0)
    assert reader.life(1) == expected(engine, 1)
    opened = Opened(0, True, engine.publisher.endpoint)
    assert reader.notices == [opened, Closed("restarted"), opened]


async def test_restart_of_an_engine_that_then_is_idle(context: Context) -> None:
    engine = RememberingEngine(context)
    engine.publish(10)
    async with reading(engine, tail_seconds=0.3) as reader:
        await reader.until(lambda: len(reader.batches) == 10)
        engine.restart()
        await reader.until(lambda: Closed("restarted") in reader.notices)
        engine.publish(3, lost=True)
        await reader.until(lambda: len(reader.batches) == 13)
    assert (reader.life(0), reader.life(1)) == (expected(engine, 0), expected(engine, 1))


@pytest.mark.parametrize("restarted", [False, True])
async def test_resume(context: Context, restarted: bool) -> None:
    engine = RememberingEngine(context)
    engine.publish(100)
    position = StoredPosition(4711, 59, fingerprint_of(engine.lives[0][59]))
    if restarted:
        engine.restart()
        engine.publish(80)
    async with reading(engine, position) as reader:
        await _subscribed(engine)
        engine.publish(5)
        await reader.until(lambda: len(reader.batches) == (85 if restarted else 45))
    assert reader.records[0].incarnation == 4711
    if restarted:
        assert reader.notices[0] == Closed("restarted")
        assert reader.life(1) == expected(engine)
    else:
        assert reader.notices == []
        assert reader.life(0) == expected(engine, without=range(60))


async def test_nobody_answers(context: Context) -> None:
    """A wrong address, or an engine whose replay is turned off: live batches wait a bounded time."""
    engine = RememberingEngine(context)
    engine.publish(5)
    async with reading(engine, replay_endpoint="tcp://127.0.0.1:1", replay_timeout_seconds=4.0) as reader:
        await _subscribed(engine)
        engine.publish(5)
        await reader.until(lambda: len(reader.batches) == 5)
        engine.publish(2, lost=True)
        engine.publish(5)
        await reader.until(lambda: len(reader.batches) == 10)
        assert reader.stream.counts.asks == {"unreachable": 2}, "nobody waits for a third"
    assert reader.life(0) == expected(engine, without=[*range(5), 10, 11])
    assert reader.notices == [
        Opened(5, False, engine.publisher.endpoint),
        Gap(10, 11, "replay_timeout"),
    ]


async def _bind_again(socket: zmq.Socket[bytes], endpoint: str) -> None:
    """Bind where another socket was: its thread lets the address go a little after `close`."""
    for _ in range(100):
        try:
            socket.bind(endpoint)
            return
        except zmq.ZMQError:
            await asyncio.sleep(0.1)
    raise AssertionError(f"{endpoint} stays in use")


async def test_engine_that_dies_while_it_answers(context: Context) -> None:
    router = context.socket(zmq.ROUTER)
    router.bind(ANYWHERE)
    endpoint = bytes(router.getsockopt(zmq.LAST_ENDPOINT)).rstrip(b"\0").decode()
    engine = RememberingEngine(context)
    engine.publish(50)
    async with reading(engine, replay_endpoint=endpoint, replay_timeout_seconds=3.0) as reader:
        assert await asyncio.to_thread(router.poll, 60_000)
        identity, *_ = router.recv_multipart()
        for seq in range(20):
            router.send_multipart([identity, b"", seq.to_bytes(8, "big"), engine.lives[0][seq]])
        await reader.until(lambda: len(reader.batches) == 20)
        router.close(0)
        # It comes back on the same address, as the next life.
        engine.restart()
        engine.publish(30)
        router = context.socket(zmq.ROUTER)
        await _bind_again(router, endpoint)
        for _ in range(2):
            assert await asyncio.to_thread(router.poll, 60_000)
            identity, _, first = router.recv_multipart()
            for seq in range(int.from_bytes(first, "big"), 30):
                router.send_multipart([identity, b"", seq.to_bytes(8, "big"), engine.lives[1][seq]])
            router.send_multipart([identity, b"", b"\xff" * 8, b""])
        await reader.until(lambda: len(reader.batches) == 50)
        router.close(0)
    assert reader.life(0) == expected(engine, 0, without=range(20, 50))
    assert reader.life(1) == expected(engine, 1)
    opened = Opened(0, True, engine.publisher.endpoint)
    assert reader.notices == [opened, Closed("restarted"), opened]


async def test_catching_up_under_load_overlaps_and_changes_nothing(
    context: Context,
) -> None:
    """A backlog too small for what comes meanwhile: it is let go, and asked for again."""
    engine = RememberingEngine(context)
    engine.publish(3000)
    async with reading(engine, backlog_bytes=1 << 16) as reader:
        await _subscribed(engine)
        for _ in range(40):
            engine.publish(100)
            engine.publish(3, lost=True)
            await asyncio.sleep(0)
        engine.publish()
        await reader.until(lambda: len(reader.batches) >= 3000 + 40 * 103 + 1)
    assert reader.life(0) == expected(engine)
    assert reader.notices == [Opened(0, True, engine.publisher.endpoint)]


async def test_removed_stream_is_not_answered_any_more(context: Context) -> None:
    engine = RememberingEngine(context)
    engine.publish(5000)
    async with reading(engine) as reader:
        await reader.until(lambda: len(reader.batches) > 0)
        reader.streams.clear()
        published = len(reader.batches)
        await asyncio.sleep(0.3)
        assert len(reader.batches) == published
