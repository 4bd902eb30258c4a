"""Positions on a real broker: whatever was lost with the process, its successor knows where to continue."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import time
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import msgspec
import pytest
from aiokafka import AIOKafkaProducer
from aiokafka.admin import AIOKafkaAdminClient, NewTopic, RecordsToDelete
from aiokafka.structs import TopicPartition

from connectors.kafka.errors import TopicMissing
from connectors.kafka.topics import partition_of, topic_name
from connectors.order.sequence import StoredPosition
from connectors.positions import keeper as positions_module
from connectors.positions import reader as position_reader
from connectors.positions.keeper import Positions
from connectors.publish.publisher import Publisher
from connectors.sources import Source, SourceKey
from pipeline.local.broker.embedded import EmbeddedBroker
from schemas.events import Batch, Closed, EventsRecord, Stored
from schemas.positions import PositionRecord, position_key
from schemas.settings import Kafka, Settings

PARTITIONS = 4


@dataclass
class Recorder:
    """Telemetry of positions and publisher that remembers what it was told."""

    unusable: list[tuple[str, str]] = field(default_factory=list)
    inexact: list[int] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)
    contested: set[tuple[str, int]] = field(default_factory=set)
    loaded: list[tuple[int, int]] = field(default_factory=list)
    recovered: list[int] = field(default_factory=list)

    def position_unusable(self, source: str, reason: str) -> None:
        self.unusable.append((source, reason))

    def positions_inexact(self, partition: int, offset: int, end: int) -> None:
        self.inexact.append(partition)

    def positions_loaded(self, sources: int, known: int) -> None:
        self.loaded.append((sources, known))

    def positions_recovered(self, sources: int) -> None:
        self.recovered.append(sources)

    def positions_not_written(self, reason: str) -> None:
        self.failures.append(reason)

    def source_contested(self, replica: str, dp_rank: int, connector: str) -> None:
        self.contested.add((replica, dp_rank))

    def broker_unreachable(self, bootstrap_servers: str, reason: str) -> None: ...
    def published(self, records: int, size: int) -> None: ...
    def publish_delayed(self, partition: int, seconds: float, waiting_bytes: int) -> None: ...
    def publish_failed(self, partition: int, reason: str) -> None: ...
    def records_abandoned(self, records: int) -> None: ...


@dataclass
class Parts:
    """What a connector has between its streams and Kafka."""

    publisher: Publisher
    positions: Positions
    told: Recorder
    overtaken: dict[SourceKey, StoredPosition]

    async def publish(self, *records: EventsRecord) -> None:
        """Return when they are acknowledged."""
        for record in records:
            self.publisher.add(record)
        assert await self.publisher.drain(60) == 0


@contextlib.asynccontextmanager
async def running(kafka: Kafka, *, killed: bool = True) -> AsyncIterator[Parts]:
    """Publisher and positions; `killed`: the end writes nothing any more."""
    told = Recorder()
    found: list[Positions] = []
    publisher = Publisher(Settings(kafka=kafka), told, lambda *said: found[0].acknowledged(*said))
    overtaken: dict[SourceKey, StoredPosition] = {}
    found.append(Positions(kafka, publisher, told, overtaken.__setitem__))
    await publisher.start()
    try:
        await found[0].start()
        yield Parts(publisher, found[0], told, overtaken)
    finally:
        if killed:
            await publisher.stop()
            await found[0].stop()
        else:
            await found[0].write(5.0)
            await publisher.stop()
            await found[0].stop()


async def create(broker: EmbeddedBroker, *topics: NewTopic) -> None:
    admin = AIOKafkaAdminClient(bootstrap_servers=broker.bootstrap_servers)
    await admin.start()
    try:
        await admin.create_topics(list(topics))
    finally:
        await admin.close()


@pytest.fixture
async def kafka(broker: EmbeddedBroker) -> Kafka:
    """Settings with topics of their own."""
    kafka = Kafka(bootstrap_servers=broker.bootstrap_servers, topic_prefix=f"test-{secrets.token_hex(4)}")
    compacted = {"cleanup.policy": "compact"}
    await create(
        broker,
        NewTopic(topic_name(kafka, "events"), PARTITIONS, 1),
        NewTopic(topic_name(kafka, "positions"), 1, 1, topic_configs=compacted),
    )
    return kafka


@pytest.fixture
def seldom(monkeypatch: pytest.MonkeyPatch) -> None:
    """Positions are written at starts and orderly stops only: a killed process has written none."""
    monkeypatch.setattr(positions_module, "WRITE_SECONDS", 3600.0)


def source(replica: str, dp_rank: int = 0) -> Source:
    return Source(replica, dp_rank, "m", "t", "m/s/t", "tcp://127.0.0.1:1")


def run(
    replica: str, incarnation: int, first: int, last: int, *, dp_rank: int = 0, closed: bool = False
) -> EventsRecord:
    batches = [
        Batch(seq, 1.0, 2.0, [Stored(seq.to_bytes(8, "big"), 16)], 1) for seq in range(first, last + 1)
    ]
    if closed:
        batches.append(Batch(None, 2.0, 2.0, [Closed("restarted")]))
    fingerprint = fingerprint_for(incarnation, last)
    return EventsRecord(
        replica, "m", "m/s/t", dp_rank, incarnation, batches, first, last, last_fingerprint=fingerprint
    )


def fingerprint_for(incarnation: int, seq: int) -> int:
    return (incarnation * 7919 + seq) % 2**32


def place(position: PositionRecord) -> tuple[int, int | None, int, bool]:
    return position.incarnation, position.seq, position.fingerprint, position.closed


NOTHING = (0, None, 0, False)


async def write(kafka: Kafka, topic: str, *records: tuple[bytes, bytes | None]) -> None:
    async with AIOKafkaProducer(bootstrap_servers=kafka.bootstrap_servers) as producer:
        for key, value in records:
            await producer.send_and_wait(topic, value, key=key, partition=0)


async def test_first_contact_knows_nothing(kafka: Kafka) -> None:
    async with running(kafka) as parts:
        found = await parts.positions.resume([source("a"), source("b", 3)])
    assert {key: place(position) for key, position in found.items()} == {
        ("a", 0): NOTHING,
        ("b", 3): NOTHING,
    }
    assert parts.told == Recorder(loaded=[(2, 0)])


@pytest.mark.usefixtures("seldom")
async def test_killed_before_any_position_was_written(kafka: Kafka) -> None:
    """Everything was published after the start: the tail of the events topic alone tells it."""
    replicas = [f"r{number}" for number in range(6)]
    async with running(kafka) as parts:
        await parts.positions.resume(map(source, replicas))
        for step in range(5):
            await parts.publish(*(run(replica, 7, step * 3, step * 3 + 2) for replica in replicas))
        await parts.publish(run("r0", 7, 15, 15, closed=True), run("r1", 7, 15, 15, closed=True))
        await parts.publish(run("r1", 9, 0, 1), run("r2", 7, 15, 17, dp_rank=0))
    async with running(kafka) as parts:
        found = await parts.positions.resume(map(source, replicas))
    assert {key: place(position) for key, position in found.items()} == {
        ("r0", 0): (7, 15, fingerprint_for(7, 15), True),
        ("r1", 0): (9, 1, fingerprint_for(9, 1), False),
        ("r2", 0): (7, 17, fingerprint_for(7, 17), False),
        **{(replica, 0): (7, 14, fingerprint_for(7, 14), False) for replica in replicas[3:]},
    }


async def test_killed_at_random_again_and_again(kafka: Kafka, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(positions_module, "WRITE_SECONDS", 0.05)
    replicas = [f"r{number}" for number in range(5)]
    at = dict.fromkeys(replicas, -1)
    for turn in range(8):
        async with running(kafka) as parts:
            found = await parts.positions.resume(map(source, replicas))
            expected = {
                (r, 0): (7, seq, fingerprint_for(7, seq), False) if seq >= 0 else NOTHING
                for r, seq in at.items()
            }
            assert {key: place(position) for key, position in found.items()} == expected
            for step in range(turn * 2):
                moved = replicas[step % 3 : 4]
                await parts.publish(*(run(replica, 7, at[replica] + 1, at[replica] + 2) for replica in moved))
                at |= {replica: at[replica] + 2 for replica in moved}
                await asyncio.sleep(0.02)
    assert at["r4"] == -1
    assert min(at[replica] for replica in replicas[:4]) > 30


@pytest.mark.usefixtures("seldom")
async def test_orderly_stop_writes_what_moved(kafka: Kafka, monkeypatch: pytest.MonkeyPatch) -> None:
    async with running(kafka, killed=False) as parts:
        await parts.positions.resume([source("a")])
        await parts.publish(run("a", 7, 0, 9))
    async with running(kafka) as parts:

        async def nothing(*_: Any) -> None: ...

        assert parts.positions._reader is not None
        monkeypatch.setattr(parts.positions._reader, "follow", nothing)
        found = await parts.positions.resume([source("a")])
    assert place(found["a", 0]) == (7, 9, fingerprint_for(7, 9), False)


@pytest.mark.usefixtures("seldom")
async def test_records_in_json_move_positions_as_well(kafka: Kafka) -> None:
    async with running(msgspec.structs.replace(kafka, record_format="json")) as parts:
        await parts.positions.resume([source("a"), source("b")])
        await parts.publish(run("a", 7, 0, 9), run("b", 8, 0, 3, closed=True))
    async with running(kafka) as parts:
        found = await parts.positions.resume([source("a"), source("b")])
    assert place(found["a", 0]) == (7, 9, fingerprint_for(7, 9), False)
    assert place(found["b", 0]) == (8, 3, fingerprint_for(8, 3), True)


@pytest.mark.usefixtures("seldom")
async def test_records_of_a_past_life_and_repeated_ones_move_nothing(kafka: Kafka) -> None:
    async with running(kafka) as parts:
        await parts.positions.resume([source("a")])
        await parts.publish(run("a", 9, 0, 4), run("a", 9, 5, 6), run("a", 9, 0, 4), run("a", 8, 0, 99))
    async with running(kafka) as parts:
        found = await parts.positions.resume([source("a")])
    assert place(found["a", 0]) == (9, 6, fingerprint_for(9, 6), False)


async def test_unreadable_positions_are_told_and_their_sources_begin_anew(kafka: Kafka) -> None:
    async with running(kafka, killed=False) as parts:
        await parts.positions.resume(map(source, "abcd"))
        await parts.publish(*(run(replica, 7, 0, 9) for replica in "abcd"))
    other = msgspec.msgpack.encode(PositionRecord("d", 0, partition=0, offset=0, incarnation=99, seq=3))
    await write(
        kafka,
        topic_name(kafka, "positions"),
        (position_key("a", 0), b"\xc1 no msgpack"),
        (position_key("b", 0), None),
        (position_key("x", 0), other),
    )
    async with running(kafka) as parts:
        found = await parts.positions.resume(map(source, "abcd"))
    known = (7, 9, fingerprint_for(7, 9), False)
    assert {key[0]: place(position) for key, position in found.items()} == {
        "a": NOTHING,
        "b": NOTHING,
        "c": known,
        "d": known,
    }
    assert sorted(parts.told.unusable) == [("b'a/0'", "undecodable"), ("b'x/0'", "wrong_key")]
    assert parts.told.loaded == [(4, 2)]


async def make_anew(broker: EmbeddedBroker, topic: str, partitions: int) -> None:
    """Delete a topic and create it again."""
    admin = AIOKafkaAdminClient(bootstrap_servers=broker.bootstrap_servers)
    await admin.start()
    await admin.delete_topics([topic])
    deadline = time.monotonic() + 60
    while topic in await admin.list_topics():
        assert time.monotonic() < deadline
        await asyncio.sleep(0.05)
    await admin.close()
    await create(broker, NewTopic(topic, partitions, 1))


AHEAD = 7_000_000_000
"""An incarnation that a clock numbered that was ahead."""


async def test_a_lost_positions_topic_is_made_from_the_log(
    kafka: Kafka, broker: EmbeddedBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Lives of a clock that was ahead, closed ones, and sources of other connectors included."""
    monkeypatch.setattr(position_reader, "PART_RECORDS", 2)
    replicas = [f"r{number}" for number in range(6)]
    async with running(kafka, killed=False) as parts:
        await parts.positions.resume(map(source, replicas))
        for seq in range(20):
            await parts.publish(*(run(replica, 7, seq, seq) for replica in replicas))
        await parts.publish(run("r0", AHEAD, 0, 3), run("r1", 7, 20, 20, closed=True))
        await parts.publish(*(run("r2", 7, seq, seq) for seq in range(20, 40)))
    await make_anew(broker, topic_name(kafka, "positions"), 1)
    last = {"r0": (AHEAD, 3, False), "r1": (7, 20, True), "r2": (7, 39, False)}
    expected = {
        (name, 0): (incarnation, seq, fingerprint_for(incarnation, seq), closed)
        for name in replicas
        for incarnation, seq, closed in [last.get(name, (7, 19, False))]
    }
    async with running(kafka) as parts:
        found = await parts.positions.resume(map(source, [*replicas[:3], "new"]))
        assert found.pop(("new", 0)).incarnation == 0
        assert {key: place(one) for key, one in found.items()} == {
            (name, 0): expected[name, 0] for name in replicas[:3]
        }
        assert (parts.told.recovered, parts.told.inexact) == ([6], [])
        assert parts.told.loaded == [(4, 3)]
    async with running(kafka) as others:
        found = await others.positions.resume(map(source, replicas[3:]))
        assert {key: place(one) for key, one in found.items()} == {
            (name, 0): expected[name, 0] for name in replicas[3:]
        }
        assert others.told.recovered == []


async def test_a_log_too_long_to_read_is_told(
    kafka: Kafka, broker: EmbeddedBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No time is left at all."""
    async with running(kafka, killed=False) as parts:
        await parts.positions.resume(map(source, "ac"))
        await parts.publish(run("a", 7, 0, 9), run("c", 7, 0, 9))
    await make_anew(broker, topic_name(kafka, "positions"), 1)
    monkeypatch.setattr(position_reader, "TAIL_SECONDS", -1.0)
    async with running(kafka) as parts:
        found = await parts.positions.resume(map(source, "ac"))
    assert {key: place(one) for key, one in found.items()} == {("a", 0): NOTHING, ("c", 0): NOTHING}
    assert sorted(parts.told.inexact) == sorted({partition_of(name, PARTITIONS) for name in "ac"})


async def test_events_topic_made_anew(kafka: Kafka, broker: EmbeddedBroker) -> None:
    """Stored offsets are those of another log: the sources begin anew, later than they ever were."""
    async with running(kafka, killed=False) as parts:
        await parts.positions.resume([source("a")])
        await parts.publish(run("a", 7, 0, 9))
    await make_anew(broker, topic_name(kafka, "events"), PARTITIONS)
    async with running(kafka) as parts:
        found = await parts.positions.resume([source("a")])
        assert place(found["a", 0]) == (7, 9, fingerprint_for(7, 9), True)
        assert parts.told.unusable == [("a/0", "topic_made_again")]


async def test_events_topic_made_anew_and_longer_than_before(kafka: Kafka, broker: EmbeddedBroker) -> None:
    """A connector that runs ends; its successor does not take an offset of the old topic for one of it."""
    async with running(kafka, killed=False) as parts:
        await parts.positions.resume([source("a")])
        await parts.publish(run("a", 7, 0, 9))
        await make_anew(broker, topic_name(kafka, "events"), PARTITIONS)
        for seq in range(10, 15):
            await parts.publish(run("a", 7, seq, seq))
        assert parts.positions.task is not None
        [ended], _ = await asyncio.wait([parts.positions.task], timeout=60)
        assert "events.v1 was deleted and made again" in str(ended.exception())
    async with running(kafka) as parts:
        found = await parts.positions.resume([source("a")])
        incarnation, _, _, closed = place(found["a", 0])
        assert (incarnation, closed) == (7, True)
        assert parts.told.unusable == [("a/0", "topic_made_again")]
    async with running(kafka) as parts:
        # What it began is of the new topic.
        await parts.positions.resume([source("a")])
        assert parts.told.unusable == []


@pytest.mark.usefixtures("seldom")
async def test_retention_behind_the_stored_offset(kafka: Kafka, broker: EmbeddedBroker) -> None:
    async with running(kafka) as parts:
        await parts.positions.resume([source("a")])
        for seq in range(10):
            await parts.publish(run("a", 7, seq, seq))
    admin = AIOKafkaAdminClient(bootstrap_servers=broker.bootstrap_servers)
    await admin.start()
    partition = TopicPartition(topic_name(kafka, "events"), partition_of("a", PARTITIONS))
    await admin.delete_records({partition: RecordsToDelete(7)})
    await admin.close()
    async with running(kafka) as parts:
        found = await parts.positions.resume([source("a")])
    assert place(found["a", 0]) == (7, 9, fingerprint_for(7, 9), False)


@pytest.mark.usefixtures("seldom")
async def test_records_between_that_nobody_needs_are_not_read(
    kafka: Kafka, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One source was left long ago, another just now, and a third connector wrote a lot between."""
    monkeypatch.setattr(position_reader, "HORIZON_SECONDS", 0.0)
    replicas = [name for name in map(str, range(100)) if partition_of(name, PARTITIONS) == 1][:3]
    old, new, foreign = replicas
    async with running(kafka) as parts:
        await parts.positions.resume([source(old), source(foreign)])
        await asyncio.sleep(0.05)
        for seq in range(200):
            await parts.publish(run(foreign, 5, seq, seq))
    async with running(kafka) as parts:
        await parts.positions.resume([source(new)])
        await parts.publish(run(new, 6, 0, 3))
    async with running(kafka) as parts:
        looked_at = []
        mention_of = position_reader._mention
        monkeypatch.setattr(
            position_reader,
            "_mention",
            lambda message: looked_at.append(message.offset) or mention_of(message),
        )
        monkeypatch.setattr(position_reader, "HORIZON_SECONDS", 0.04)
        found = await parts.positions.resume([source(old), source(new)])
    assert place(found[old, 0]) == NOTHING
    assert place(found[new, 0]) == (6, 3, fingerprint_for(6, 3), False)
    assert looked_at == [200]


async def test_positions_move_with_the_partition_although_their_sources_are_idle(
    kafka: Kafka, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another connector writes to the partition; the idle one's offset follows the end."""
    monkeypatch.setattr(positions_module, "WRITE_SECONDS", 0.02)
    idle, busy = [name for name in map(str, range(100)) if partition_of(name, PARTITIONS) == 2][:2]
    async with running(kafka) as parts, running(kafka) as others:
        await parts.positions.resume([source(idle)])
        await others.positions.resume([source(busy)])
        for seq in range(30):
            await others.publish(run(busy, 5, seq, seq))
        deadline = time.monotonic() + 60
        while True:
            assert parts.positions._reader is not None
            async with parts.positions._reading:
                stored = await parts.positions._reader.stored()
            if stored[idle, 0].position.offset == 29:
                break
            assert time.monotonic() < deadline
            await asyncio.sleep(0.05)
    assert place(stored[idle, 0].position) == NOTHING
    assert not parts.told.contested
    assert not others.told.contested


async def test_two_connectors_for_one_source_are_told(kafka: Kafka, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(positions_module, "WRITE_SECONDS", 0.01)
    async with running(kafka) as parts, running(kafka) as others:
        await parts.positions.resume([source("a"), source("b")])
        await others.positions.resume([source("b", 0), source("c")])
        deadline = time.monotonic() + 60
        while not (parts.told.contested and others.told.contested):
            assert time.monotonic() < deadline
            await asyncio.sleep(0.05)
    assert parts.told.contested == others.told.contested == {("b", 0)}


@pytest.mark.usefixtures("seldom")
@pytest.mark.parametrize("killed", [True, False])
async def test_who_restarts_after_another_connector_goes_on_where_that_one_was(
    kafka: Kafka, killed: bool
) -> None:
    """The engine restarted while two read it: the later incarnation counts, whoever stops last."""
    async with running(kafka, killed=killed) as first:
        await first.positions.resume([source("a"), source("b")])
        await first.publish(run("a", 7, 0, 9), run("b", 7, 0, 4))
        async with running(kafka, killed=False) as second:
            await second.positions.resume([source("a"), source("b")])
            await first.publish(run("a", 8, 0, 2), run("b", 7, 5, 5))
            await second.publish(run("a", 9, 0, 3), run("b", 7, 5, 8))
        await first.publish(run("a", 8, 3, 30))
    async with running(kafka) as parts:
        found = await parts.positions.resume([source("a"), source("b")])
    assert place(found["a", 0]) == (9, 3, fingerprint_for(9, 3), False)
    assert place(found["b", 0]) == (7, 8, fingerprint_for(7, 8), False)


async def test_a_connector_goes_on_with_the_later_incarnation_of_one_that_was_killed(
    kafka: Kafka, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is killed before a position of what it published is written: only the log has that."""
    monkeypatch.setattr(positions_module, "REFRESH_EVERY", 1)
    monkeypatch.setattr(positions_module, "OWNERS_EVERY", 1)
    deadline = time.monotonic() + 120
    async with running(kafka) as stays:
        await stays.positions.resume([source("a"), source("b")])
        await stays.publish(run("a", 8, 0, 2), run("b", 8, 0, 1))
        async with running(kafka) as killed:
            await killed.positions.resume([source("a")])
            assert killed.positions.task is not None
            killed.positions.task.cancel()
            await killed.publish(run("a", 9, 0, 3))
        monkeypatch.setattr(positions_module, "WRITE_SECONDS", 0.01)
        await stays.publish(run("a", 8, 3, 30), run("b", 8, 2, 5))
        while not stays.overtaken:
            assert time.monotonic() < deadline
            await asyncio.sleep(0.01)
        await stays.publish(run("a", 9, 4, 4))
    assert stays.overtaken == {("a", 0): StoredPosition(9, 3, fingerprint_for(9, 3))}
    assert stays.told.contested == {("a", 0)}
    async with running(kafka) as parts:
        found = await parts.positions.resume([source("a"), source("b")])
    assert place(found["a", 0]) == (9, 4, fingerprint_for(9, 4), False)
    assert place(found["b", 0]) == (8, 5, fingerprint_for(8, 5), False)


@pytest.mark.usefixtures("seldom")
async def test_who_restarts_finds_what_another_connector_published_before_it_was_killed(kafka: Kafka) -> None:
    """The one that stayed wrote positions behind it, and knew nothing of it."""
    async with running(kafka, killed=False) as stays:
        await stays.positions.resume([source("a")])
        await stays.publish(run("a", 8, 0, 2))
        async with running(kafka) as killed:
            await killed.positions.resume([source("a")])
            await killed.publish(run("a", 9, 0, 3))
        await stays.publish(run("a", 8, 3, 30))
    async with running(kafka) as parts:
        found = await parts.positions.resume([source("a")])
    assert place(found["a", 0]) == (9, 3, fingerprint_for(9, 3), False)


async def test_a_source_that_comes_back_to_the_same_process(kafka: Kafka) -> None:
    async with running(kafka) as parts:
        await parts.positions.resume([source("a"), source("b")])
        await parts.publish(run("a", 7, 0, 9), run("b", 7, 0, 4))
        await parts.publish(run("a", 7, 10, 11, closed=True))
        parts.positions.forget(("a", 0))
        found = await parts.positions.resume([source("a")])
        assert place(found["a", 0]) == (7, 11, fingerprint_for(7, 11), True)
        await parts.publish(run("a", 8, 0, 2))
        found = await parts.positions.resume([source("a")])
        assert place(found["a", 0]) == (8, 2, fingerprint_for(8, 2), False)


async def test_a_successor_knows_the_places_that_servers_reported_and_that_have_not_ended(
    kafka: Kafka, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(positions_module, "WRITE_SECONDS", 0.01)
    memory, storage, pool = ("a", "", "m"), ("a", "fs", "m"), ("", "s3", "m")
    reported = {"a@m": memory, "a:fs@m": storage, "pool:s3@m": pool}
    sources = [replace(source(replica), place=place) for replica, place in reported.items()]
    async with running(kafka, killed=False) as parts:
        assert await parts.positions.places() == []
        await parts.positions.resume([*sources, source("engine")])
        await parts.publish(*(run(replica, 7, 0, 3) for replica in (*reported, "engine")))
        await parts.publish(run("a@m", 7, 4, 4, closed=True))
        parts.positions.forget(("a@m", 0))
    async with running(kafka) as parts:
        assert sorted(await parts.positions.places()) == sorted([storage, pool])
        # Of one that comes back the place is known again.
        await parts.positions.resume(sources)
        await parts.publish(run("a@m", 8, 0, 0))
        deadline = time.monotonic() + 60.0
        while len(found := await parts.positions.places()) < len(reported):
            assert time.monotonic() < deadline, found
            await asyncio.sleep(0.05)


async def test_missing_topic_names_the_command(broker: EmbeddedBroker) -> None:
    kafka = Kafka(bootstrap_servers=broker.bootstrap_servers, topic_prefix=f"test-{secrets.token_hex(4)}")
    await create(broker, NewTopic(topic_name(kafka, "events"), PARTITIONS, 1))
    with pytest.raises(TopicMissing, match=rf"{topic_name(kafka, 'positions')} .*kvlens topics apply"):
        async with running(kafka):
            pass


async def test_many_sources_are_written_and_read(kafka: Kafka) -> None:
    sources: Sequence[Source] = [
        source(f"replica-{number}", rank) for number in range(250) for rank in (0, 1)
    ]
    async with running(kafka, killed=False) as parts:
        await parts.positions.resume(sources)
        await parts.publish(*(run(s.replica, 7, 0, 9, dp_rank=s.dp_rank) for s in sources))
    async with running(kafka) as parts:
        found = await parts.positions.resume(sources)
    assert {place(position) for position in found.values()} == {(7, 9, fingerprint_for(7, 9), False)}
    assert len(found) == 500
