"""Our Faust transport on a real broker: where it begins, and what an aborted transaction leaves."""

from __future__ import annotations

import asyncio
import secrets
import threading
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.consumer.fetcher import FetchResult

from connectors.kafka.topics import topic_name
from pipeline.kafka import topics
from pipeline.local.broker.embedded import EmbeddedBroker
from pipeline.worker.consumer.app import faust_app
from pipeline.worker.consumer.transport import NoTables, Transport
from schemas.settings import Kafka, Settings, Worker


@pytest.fixture
async def settings(broker: EmbeddedBroker, tmp_path: Path) -> Settings:
    """Of topics and a group of their own; the topics are there."""
    name = f"transport_{secrets.token_hex(4)}"
    settings = Settings(
        kafka=Kafka(bootstrap_servers=broker.bootstrap_servers, topic_prefix=name, group=name),
        worker=Worker(state_directory=str(tmp_path)),
    )
    await topics.apply(settings)
    return settings


@asynccontextmanager
async def taking(
    settings: Settings,
    topic: str,
    positions: Mapping[tuple[str, int], int],
    take: Callable[[bytes], None],
    *,
    committed: bool,
) -> AsyncIterator[Any]:
    """Give `take` each value that an agent gets; yields the agent's app."""
    app = faust_app(settings, settings.kafka.group)
    app.transport = Transport(
        app.conf.broker_consumer, app, positions=lambda: positions, committed=committed, chunk_bytes=1 << 18
    )

    async def collect(stream: Any) -> None:
        async for event in stream.noack().events():
            for record in event.message.records:
                take(record.value)

    app.agent(app.topic(topic, value_type=bytes, value_serializer="raw", key_type=bytes))(collect)
    await app.start()
    try:
        yield app
    finally:
        await app.stop()


async def received(
    settings: Settings, topic: str, positions: Mapping[tuple[str, int], int], *, committed: bool
) -> list[bytes]:
    """Values that an agent gets, up to and without `end`."""
    values: list[bytes] = []
    ended = asyncio.Event()

    def take(value: bytes) -> None:
        if value == b"end":
            ended.set()
        else:
            values.append(value)

    async with taking(settings, topic, positions, take, committed=committed):
        await asyncio.wait_for(ended.wait(), 60)
    return values


async def test_a_fetch_that_has_little_is_held_for_as_long_as_it_was_told(settings: Settings) -> None:
    topic = topic_name(settings.kafka, "events")
    positions = {(topic, number): 0 for number in range(settings.kafka.partitions)}
    got: asyncio.Queue[bytes] = asyncio.Queue()

    async def seconds_of_five() -> float:
        """Send the next one as soon as one came: each finds a fetch that has just begun."""
        for value in (b"first", b"1", b"2", b"3", b"4", b"5"):
            await producer.send_and_wait(topic, value, partition=0)
            assert await asyncio.wait_for(got.get(), 60) == value
            if value == b"first":
                began = time.monotonic()
        return time.monotonic() - began

    async with (
        taking(settings, topic, positions, got.put_nowait, committed=False) as app,
        AIOKafkaProducer(bootstrap_servers=settings.kafka.bootstrap_servers) as producer,
    ):
        app.consumer.hold_fetches(1.0)
        held = await seconds_of_five()
        assert held > 2.5
        app.consumer.hold_fetches(0.01)
        assert await seconds_of_five() < held


@pytest.mark.parametrize(
    ("committed", "position", "expected"),
    [
        (True, 0, [b"0", b"1", b"4"]),
        (False, 0, [b"0", b"1", b"2", b"3", b"4"]),
        (True, 1, [b"1", b"4"]),
    ],
)
async def test_aborted_records_are_seen_only_uncommitted(
    committed: bool, position: int, expected: list[bytes], broker: EmbeddedBroker, settings: Settings
) -> None:
    topic = topic_name(settings.kafka, "residency")
    async with AIOKafkaProducer(
        bootstrap_servers=broker.bootstrap_servers, transactional_id=settings.kafka.group
    ) as producer:
        for values, commit in (([b"0", b"1"], True), ([b"2", b"3"], False), ([b"4", b"end"], True)):
            await producer.begin_transaction()
            for value in values:
                await producer.send_and_wait(topic, value, partition=2)
            await (producer.commit_transaction() if commit else producer.abort_transaction())
    assert await received(settings, topic, {(topic, 2): position}, committed=committed) == expected


async def test_positions_are_set_where_records_are_unpacked(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = topic_name(settings.kafka, "residency")
    seeks: list[tuple[int, int]] = []
    unpacking: set[int] = set()
    seek, getall = AIOKafkaConsumer.seek, FetchResult.getall

    def noted_seek(self: Any, partition: Any, offset: int) -> None:
        seeks.append((threading.get_ident(), offset))
        seek(self, partition, offset)

    def noted_getall(self: Any, max_records: int | None = None) -> Any:
        unpacking.add(threading.get_ident())
        return getall(self, max_records)

    monkeypatch.setattr(AIOKafkaConsumer, "seek", noted_seek)
    monkeypatch.setattr(FetchResult, "getall", noted_getall)
    async with AIOKafkaProducer(bootstrap_servers=settings.kafka.bootstrap_servers) as producer:
        for value in (b"0", b"1", b"end"):
            await producer.send_and_wait(topic, value, partition=2)
    positions = {(topic, 2): 1}
    values: asyncio.Queue[bytes] = asyncio.Queue()
    async with taking(settings, topic, positions, values.put_nowait, committed=True) as app:
        assert [await asyncio.wait_for(values.get(), 60) for _ in range(2)] == [b"1", b"end"]
        positions[topic, 2] = 0
        await app.consumer.perform_seek()
        again = [await asyncio.wait_for(values.get(), 60) for _ in range(3)]
    assert again == [b"0", b"1", b"end"]
    assert {offset for _, offset in seeks} == {0, 1}
    assert {thread for thread, _ in seeks} == unpacking
    assert threading.get_ident() not in unpacking


async def test_a_slow_agent_gets_all_records_in_order_many_at_a_time(
    broker: EmbeddedBroker, settings: Settings
) -> None:
    topic = topic_name(settings.kafka, "events")
    counts = {0: 2000, 3: 700, 5: 1}
    async with AIOKafkaProducer(bootstrap_servers=broker.bootstrap_servers) as producer:
        for partition, count in counts.items():
            for number in range(count):
                await producer.send(topic, b"%d" % number, partition=partition)
    app = faust_app(settings, settings.kafka.group)
    positions = {(topic, partition): 0 for partition in range(8)}
    app.transport = Transport(
        app.conf.broker_consumer, app, positions=lambda: positions, committed=False, chunk_bytes=1 << 10
    )
    values: dict[int, list[bytes]] = {}
    chunks, handled, most_waiting, fewest_asked_for = 0, 0, 0, 8
    ended = asyncio.Event()

    async def collect(stream: Any) -> None:
        nonlocal chunks, handled, most_waiting, fewest_asked_for
        async for event in stream.noack().events():
            chunk = event.message
            values.setdefault(chunk.partition, []).extend(record.value for record in chunk.records)
            chunks, handled = chunks + 1, handled + len(chunk.records)
            most_waiting = max(most_waiting, stream.channel.queue.qsize())
            # Where a full buffer leaves none to ask for, Faust sleeps for a second.
            fewest_asked_for = min(fewest_asked_for, len(app.consumer._get_active_partitions()))
            await asyncio.sleep(0.01)
            if handled >= sum(counts.values()):
                ended.set()

    app.agent(app.topic(topic, value_type=bytes, value_serializer="raw", key_type=bytes))(collect)
    await app.start()
    try:
        await asyncio.wait_for(ended.wait(), 60)
        newest = dict(app.consumer.last_fetched)
    finally:
        await app.stop()
    assert values == {
        partition: [b"%d" % number for number in range(count)] for partition, count in counts.items()
    }
    assert chunks < handled / 10
    assert most_waiting <= app.conf.stream_buffer_maxsize
    assert fewest_asked_for == 8
    assert newest == {(topic, partition): count - 1 for partition, count in counts.items()}


async def test_nothing_sleeps_before_the_consumer_joins_its_group(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    slept: list[float] = []

    async def sleep(_: NoTables, seconds: float) -> None:
        slept.append(float(seconds))

    monkeypatch.setattr(NoTables, "sleep", sleep)
    topic = topic_name(settings.kafka, "events")
    async with AIOKafkaProducer(bootstrap_servers=settings.kafka.bootstrap_servers) as producer:
        await producer.send_and_wait(topic, b"end", partition=0)
    assert await received(settings, topic, {}, committed=False) == []
    assert slept == []
