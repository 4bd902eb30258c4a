"""The lists in place of Kafka behave as Kafka does: the same cases over both."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, RecordsToDelete
from aiokafka.errors import KafkaError, OffsetOutOfRangeError
from aiokafka.structs import OffsetAndMetadata

from connectors.kafka.topics import topic_name
from pipeline.kafka import topics
from pipeline.local.broker.embedded import EmbeddedBroker
from schemas.settings import Kafka, Settings
from tests.simulation import clients
from tests.simulation.loop import Process
from tests.simulation.simulation import Simulation


@dataclass
class Cluster:
    """Clients of a cluster, and a partition of it that nobody else uses."""

    producer: Callable[..., Any]
    consumer: Callable[..., Any]
    admin: Callable[..., Any]
    options: dict[str, Any]
    place: TopicPartition
    delete: Callable[[int], Awaitable[None]]
    """Deletes the records before an offset."""

    async def started(self, client: Any) -> Any:
        await client.start()
        return client

    async def transactional(self, name: str) -> Any:
        return await self.started(
            self.producer(transactional_id=f"{self.place.topic}-{name}", **self.options)
        )

    async def reader(self, *, committed: bool, resets: str = "earliest") -> Any:
        level = "read_committed" if committed else "read_uncommitted"
        reader = await self.started(
            self.consumer(
                isolation_level=level, enable_auto_commit=False, auto_offset_reset=resets, **self.options
            )
        )
        reader.assign([self.place])
        return reader

    async def send(self, producer: Any, *values: bytes) -> list[int]:
        """Send values one by one, in order; return their offsets."""
        sent = [
            await producer.send(self.place.topic, value, key=b"k", partition=self.place.partition)
            for value in values
        ]
        return [(await one).offset for one in sent]

    async def commit(self, producer: Any, end: int) -> None:
        """Commit, and wait until the log of committed records ends there.

        Kafka acknowledges before it has written the markers.
        """
        await producer.commit_transaction()
        for _ in range(200):
            if (await self.read(committed=True))[2] >= end:
                return
            await asyncio.sleep(0.05)

    async def read(self, *, committed: bool) -> tuple[list[tuple[int, bytes]], int, int]:
        """Return (offset, value) of all that such a reader gets, its position then, and its end."""
        reader = await self.reader(committed=committed)
        reader.seek(self.place, 0)
        end = (await reader.end_offsets([self.place]))[self.place]
        found: list[tuple[int, bytes]] = []
        while (position := await reader.position(self.place)) < end:
            batches = await reader.getmany(self.place, timeout_ms=200)
            found += [(message.offset, message.value) for message in batches.get(self.place, ())]
        await reader.stop()
        return found, position, end


Case = Callable[[Cluster], Awaitable[None]]


def over_lists(case: Case) -> None:
    settings = Settings(kafka=Kafka(bootstrap_servers="lists:1"))
    simulation = Simulation(1, settings, partitions=1, shards=1)
    process = Process(simulation, "case")
    topic = topic_name(settings.kafka, "events")

    async def delete(before: int) -> None:
        simulation.broker.retain((topic, 0), before)

    async def run() -> None:
        place = TopicPartition(topic, 0)
        await case(Cluster(clients.Producer, clients.Consumer, clients.Admin, {}, place, delete))

    done: list[asyncio.Task[None]] = []
    process.call_soon(lambda: done.append(process.create_task(run())))
    simulation.run(300.0, unless=lambda: bool(done) and done[0].done())
    done[0].result()


def over_kafka(broker: EmbeddedBroker, case: Case) -> None:
    prefix = f"contract_{secrets.token_hex(4)}"
    kafka = Kafka(bootstrap_servers=broker.bootstrap_servers, topic_prefix=prefix, partitions=1)
    place = TopicPartition(topic_name(kafka, "events"), 0)
    options = {"bootstrap_servers": broker.bootstrap_servers}

    async def delete(before: int) -> None:
        admin = AIOKafkaAdminClient(**options)
        await admin.start()
        await admin.delete_records({place: RecordsToDelete(before_offset=before)})
        await admin.close()

    async def run() -> None:
        await topics.apply(Settings(kafka=kafka))
        await case(Cluster(AIOKafkaProducer, AIOKafkaConsumer, AIOKafkaAdminClient, options, place, delete))

    asyncio.run(run())


async def committed_readers_see_what_counts(cluster: Cluster) -> None:
    plain = await cluster.started(cluster.producer(**cluster.options))
    assert await cluster.send(plain, b"plain") == [0]
    await plain.stop()
    one = await cluster.transactional("one")
    await one.begin_transaction()
    assert await cluster.send(one, b"a", b"b") == [1, 2]
    assert await cluster.read(committed=True) == ([(0, b"plain")], 1, 1)
    assert await cluster.read(committed=False) == ([(0, b"plain"), (1, b"a"), (2, b"b")], 3, 3)
    # The marker takes an offset.
    await cluster.commit(one, 4)
    assert await cluster.read(committed=True) == ([(0, b"plain"), (1, b"a"), (2, b"b")], 4, 4)
    await one.stop()


async def a_new_owner_aborts_and_fences(cluster: Cluster) -> None:
    old = await cluster.transactional("id")
    await old.begin_transaction()
    await cluster.send(old, b"never")
    await old.send_offsets_to_transaction({cluster.place: OffsetAndMetadata(7, "old")}, "group")
    new = await cluster.transactional("id")
    assert await cluster.read(committed=True) == ([], 2, 2)
    with pytest.raises(KafkaError):
        await old.commit_transaction()
    await new.begin_transaction()
    assert await cluster.send(new, b"counts") == [2]
    await new.send_offsets_to_transaction({cluster.place: OffsetAndMetadata(3, "new")}, "group")
    assert await _committed(cluster) == (-1, "")
    await cluster.commit(new, 4)
    assert await _committed(cluster) == (3, "new")
    assert (await cluster.read(committed=True))[0] == [(2, b"counts")]
    await new.stop()


async def _committed(cluster: Cluster) -> tuple[int, str]:
    admin = await cluster.started(cluster.admin(**cluster.options))
    [found] = (await admin.list_consumer_group_offsets("group", partitions=[cluster.place])).values()
    await admin.close()
    return found.offset, found.metadata or ""


async def an_open_transaction_holds_later_records_back(cluster: Cluster) -> None:
    one, other = await cluster.transactional("one"), await cluster.transactional("other")
    await one.begin_transaction()
    await cluster.send(one, b"first")
    await other.begin_transaction()
    await cluster.send(other, b"second")
    await other.commit_transaction()
    assert await cluster.read(committed=True) == ([], 0, 0)
    await cluster.commit(one, 4)
    assert (await cluster.read(committed=True))[0] == [(0, b"first"), (1, b"second")]
    await one.stop()
    await other.stop()


async def batches_are_acknowledged_with_their_first_offset(cluster: Cluster) -> None:
    producer = await cluster.started(cluster.producer(enable_idempotence=True, **cluster.options))
    sent = []
    for values in ((b"a", b"b"), (b"c",), (b"d", b"e")):
        batch = producer.create_batch()
        for value in values:
            batch.append(timestamp=None, key=None, value=value, headers=[])
        batch.close()
        sent.append(await producer.send_batch(batch, cluster.place.topic, partition=cluster.place.partition))
    assert [(await one).offset for one in sent] == [0, 2, 3]
    await producer.stop()
    found, _, end = await cluster.read(committed=False)
    assert ([value for _, value in found], end) == ([b"a", b"b", b"c", b"d", b"e"], 5)


async def behind_retention_readers_begin_anew_or_are_told(cluster: Cluster) -> None:
    producer = await cluster.started(cluster.producer(**cluster.options))
    await cluster.send(producer, *(bytes([number]) for number in range(6)))
    await producer.stop()
    await cluster.delete(4)
    earliest = await cluster.reader(committed=False)
    assert await earliest.beginning_offsets([cluster.place]) == {cluster.place: 4}
    earliest.seek(cluster.place, 1)
    offsets: list[int] = []
    while len(offsets) < 2:
        offsets += _offsets(await earliest.getmany(cluster.place, timeout_ms=200))
    assert offsets == [4, 5]
    await earliest.stop()
    strict = await cluster.reader(committed=False, resets="none")
    strict.seek(cluster.place, 1)
    with pytest.raises(OffsetOutOfRangeError) as raised:
        await _read_on(cluster, strict)
    assert raised.value.args == ({cluster.place: 1},)
    await strict.stop()


async def _read_on(cluster: Cluster, reader: Any) -> None:
    for _ in range(20):
        await reader.getmany(cluster.place, timeout_ms=200)


def _offsets(batches: dict[TopicPartition, Iterable[Any]]) -> list[int]:
    return [message.offset for messages in batches.values() for message in messages]


CASES: tuple[Case, ...] = (
    committed_readers_see_what_counts,
    a_new_owner_aborts_and_fences,
    an_open_transaction_holds_later_records_back,
    batches_are_acknowledged_with_their_first_offset,
    behind_retention_readers_begin_anew_or_are_told,
)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
def test_lists(case: Case) -> None:
    over_lists(case)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
def test_kafka(broker: EmbeddedBroker, case: Case) -> None:
    over_kafka(broker, case)
