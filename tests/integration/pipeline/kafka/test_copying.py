"""A log copied into more partitions, on a real broker: each record once, whatever stopped an earlier copy."""

from __future__ import annotations

import re
import secrets
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from aiokafka import AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, RecordsToDelete

from connectors.kafka.consumer import started_consumer
from connectors.kafka.errors import TopicMissing
from connectors.kafka.topics import partition_of_key, topic_name
from pipeline.errors import KafkaUnavailable
from pipeline.kafka import topics
from pipeline.kafka.copying import CHUNK_RECORDS, CopyTooLate, copy_events
from pipeline.local.broker.embedded import EmbeddedBroker
from schemas.events import Batch, EventsRecord
from schemas.settings import Kafka, Settings
from tests.support.growing_topics import grow

OLD, NEW = 3, 7
KEYS = [f"replica-{number}".encode() for number in range(20)]
Content = dict[bytes, list[tuple[bytes, dict[str, bytes]]]]


def installation(broker: EmbeddedBroker, partitions: int) -> Settings:
    name = f"copying_{secrets.token_hex(4)}"
    return Settings(
        kafka=Kafka(
            bootstrap_servers=broker.bootstrap_servers, topic_prefix=name, group=name, partitions=partitions
        )
    )


@pytest.fixture
async def old(broker: EmbeddedBroker) -> Settings:
    settings = installation(broker, OLD)
    await topics.apply(settings)
    await write(settings, range(2 * CHUNK_RECORDS + 100))
    return settings


@pytest.fixture
async def new(broker: EmbeddedBroker) -> Settings:
    settings = installation(broker, NEW)
    await topics.apply(settings)
    return settings


async def write(settings: Settings, numbers: range, topic: str = "events") -> None:
    """Write a record of each replica in turn."""
    name = topic_name(settings.kafka, topic)
    async with AIOKafkaProducer(bootstrap_servers=settings.kafka.bootstrap_servers) as producer:
        for number in numbers:
            key = KEYS[number % len(KEYS)]
            await producer.send(
                name,
                f"record {number}".encode(),
                key=key,
                partition=partition_of_key(key, OLD) if topic == "events" else 0,
                headers=[("content-type", b"application/msgpack")],
            )
        await producer.flush()


async def read(settings: Settings) -> Content:
    """Return value and headers of the records of each key, without where they were copied from."""
    places = [
        TopicPartition(topic_name(settings.kafka, "events"), number)
        for number in range(settings.kafka.partitions)
    ]
    found: Content = {}
    async with started_consumer(
        bootstrap_servers=settings.kafka.bootstrap_servers, fetch_max_wait_ms=50
    ) as consumer:
        consumer.assign(places)
        await consumer.seek_to_beginning()
        ends = await consumer.end_offsets(places)
        while any([await consumer.position(place) < end for place, end in ends.items()]):
            for place, records in (await consumer.getmany(timeout_ms=200)).items():
                for record in records:
                    assert partition_of_key(record.key or b"", len(places)) == place.partition
                    headers = {name: value for name, value in record.headers if name != "copied-from"}
                    found.setdefault(record.key or b"", []).append((record.value, headers))
    return found


async def commits(settings: Settings, change: Callable[[int], int], old: Settings) -> None:
    """Change what the copy has committed of each partition."""
    places = [TopicPartition(topic_name(old.kafka, "events"), number) for number in range(OLD)]
    async with started_consumer(
        bootstrap_servers=settings.kafka.bootstrap_servers,
        group_id=f"{settings.kafka.group}.copy",
        enable_auto_commit=False,
    ) as consumer:
        consumer.assign(places)
        await consumer.commit({place: change(await consumer.committed(place) or 0) for place in places})


async def copy(settings: Settings, old: Settings) -> tuple[Any, list[str]]:
    said: list[str] = []
    return await copy_events(settings, old.kafka.topic_prefix, said.append), said


async def test_every_record_is_copied_once_in_its_replicas_order(old: Settings, new: Settings) -> None:
    count = 2 * CHUNK_RECORDS + 100
    done, said = await copy(new, old)
    assert done == (count, 0, 0, 0)
    assert len(said) == OLD
    assert await read(new) == await read(old)
    assert (await copy(new, old))[0] == (0, 0, 0, 0)
    await write(old, range(count, count + 50))
    assert (await copy(new, old))[0] == (50, 0, 0, 0)
    assert await read(new) == await read(old)


async def test_what_a_killed_copy_sent_without_committing_is_not_sent_again(
    old: Settings, new: Settings
) -> None:
    await copy(new, old)
    # One chunk is under way at a time, so of one partition the newest commit is missing.
    await commits(new, lambda offset: max(0, offset - CHUNK_RECORDS), old)
    await write(old, range(40))
    assert (await copy(new, old))[0] == (40, 0, 0, 0)
    assert await read(new) == await read(old)


async def test_what_cannot_be_copied_is_counted(old: Settings, new: Settings) -> None:
    address = old.kafka.bootstrap_servers
    topic = topic_name(old.kafka, "events")
    expected = await read(old)
    async with AIOKafkaProducer(bootstrap_servers=address) as producer:
        # Partition 2 of three is that of a key with three partitions or never.
        stranger = next(key for key in KEYS if partition_of_key(key, OLD) != 2)
        await producer.send_and_wait(topic, b"misplaced", key=stranger, partition=2)
        await producer.send_and_wait(topic, b"no key", partition=0)
    admin = AIOKafkaAdminClient(bootstrap_servers=address)
    await admin.start()
    await admin.delete_records({TopicPartition(topic, 1): RecordsToDelete(30)})
    await admin.close()
    done, said = await copy(new, old)
    assert re.fullmatch(rf"{topic}, partition 2, offset \d+: the first record that is left out", said[-1])
    count = sum(map(len, expected.values()))
    assert done == (count - 30 + 1, 30, 1, 0)
    copied = await read(new)
    assert copied.pop(b"") == [(b"no key", {})]
    gone = 0
    for key, records in expected.items():
        kept = copied.get(key, [])
        assert kept == records[len(records) - len(kept) :]
        gone += len(records) - len(kept)
        assert len(kept) == len(records) or partition_of_key(key, OLD) == 1
    assert gone == 30


async def test_a_topic_that_grew_thrice_is_copied_in_the_order_of_each_source(
    broker: EmbeddedBroker, new: Settings
) -> None:
    """Some connectors restart at a growth; one that does not goes on with the number that it knows."""
    old = installation(broker, 1)
    await topics.apply(old)
    address, topic = old.kafka.bootstrap_servers, topic_name(old.kafka, "events")
    written: dict[bytes, list[bytes]] = {key: [] for key in KEYS}
    slow = KEYS[:5]
    """Of the connector that is not restarted at the second growth."""
    for partitions in (1, 2, 4, 6):
        if partitions > 1:
            await grow(address, topic, partitions)
        async with AIOKafkaProducer(bootstrap_servers=address) as producer:
            for number in range(3 * len(KEYS)):
                key = KEYS[number % len(KEYS)]
                value = run_of(key, incarnation=partitions, seq=len(written[key]))
                known = 2 if partitions == 4 and key in slow else partitions
                await producer.send(topic, value, key=key, partition=partition_of_key(key, known))
                written[key].append(value)
            await producer.flush()
    done, said = await copy(new, old)
    assert done == (4 * 3 * len(KEYS), 0, 0, 0)
    assert len(said) == 6
    assert {key: [value for value, _ in records] for key, records in (await read(new)).items()} == written
    assert (await copy(new, old))[0] == (0, 0, 0, 0)


def run_of(key: bytes, incarnation: int, seq: int) -> bytes:
    """Return a record of one batch."""
    return msgspec.msgpack.encode(
        EventsRecord(
            replica=key.decode(),
            model="m",
            hash_domain="m",
            dp_rank=0,
            incarnation=incarnation,
            batches=[Batch(seq=seq, ts=1.0, received_at=1.0, events=[])],
            first_seq=seq,
            last_seq=seq,
        )
    )


async def test_nothing_is_copied_behind_what_connectors_wrote(old: Settings, new: Settings) -> None:
    await write(new, range(1), "positions")
    with pytest.raises(CopyTooLate, match=f"{new.kafka.topic_prefix}.positions.v1 has positions"):
        await copy(new, old)
    assert await read(new) == {}


async def test_topics_and_brokers_that_are_not_there_are_said_so(
    old: Settings, broker: EmbeddedBroker, free_port: Callable[[], int]
) -> None:
    unmade = installation(broker, NEW)
    with pytest.raises(TopicMissing, match=unmade.kafka.topic_prefix):
        await copy(unmade, old)
    nobody = msgspec.structs.replace(old.kafka, bootstrap_servers=f"127.0.0.1:{free_port()}")
    with pytest.raises(KafkaUnavailable, match=r"check kafka\.bootstrap_servers"):
        await copy(msgspec.structs.replace(old, kafka=nobody), old)
