"""What waits for a group is counted in records: on a real broker, with transactions that were cut off."""

from __future__ import annotations

import secrets
import time
from collections.abc import AsyncIterator

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewTopic

from connectors.kafka.consumer import stop_consumer
from pipeline.doctor.asking import groups
from pipeline.doctor.facts import GroupFacts
from pipeline.local.broker.embedded import EmbeddedBroker


class Log:
    """A topic of two partitions and a group that reads it."""

    def __init__(self, broker: EmbeddedBroker) -> None:
        self.servers = broker.bootstrap_servers
        self.topic = self.group = f"waiting-{secrets.token_hex(4)}"
        self.places = [TopicPartition(self.topic, number) for number in range(2)]
        self.producer = AIOKafkaProducer(bootstrap_servers=self.servers, transactional_id=self.topic)
        self.admin = AIOKafkaAdminClient(bootstrap_servers=self.servers)

    async def write(self, records: int, *, commit: bool = True, size: int = 1) -> None:
        """Send so many records to each partition, in one transaction."""
        await self.producer.begin_transaction()
        for place in self.places:
            for _ in range(records):
                await self.producer.send(self.topic, b"x" * size, partition=place.partition)
        await self.producer.flush()
        await (self.producer.commit_transaction() if commit else self.producer.abort_transaction())

    async def commit(self, offset: int) -> None:
        consumer = AIOKafkaConsumer(
            bootstrap_servers=self.servers, group_id=self.group, enable_auto_commit=False
        )
        await consumer.start()
        consumer.assign(self.places)
        await consumer.commit(dict.fromkeys(self.places, offset))
        await stop_consumer(consumer)

    async def asked(self) -> GroupFacts:
        consumer = AIOKafkaConsumer(
            bootstrap_servers=self.servers, enable_auto_commit=False, isolation_level="read_committed"
        )
        await consumer.start()
        try:
            return await groups.ask_group(self.admin, consumer, self.group, self.topic, len(self.places))
        finally:
            await stop_consumer(consumer)


@pytest.fixture
async def log(broker: EmbeddedBroker) -> AsyncIterator[Log]:
    log = Log(broker)
    await log.admin.start()
    await log.admin.create_topics([NewTopic(log.topic, 2, 1)])
    await log.producer.start()
    yield log
    await log.producer.stop()
    await log.admin.close()


async def test_offsets_that_are_no_records_do_not_wait(log: Log) -> None:
    assert (await log.asked()).waiting == {0: 0, 1: 0}
    await log.write(1)
    asked = await log.asked()
    assert asked.waiting == {0: 1, 1: 1}
    assert asked.waiting_since == pytest.approx(dict.fromkeys((0, 1), time.time()), abs=60)
    await log.commit(1)
    asked = await log.asked()
    assert (asked.waiting, asked.waiting_since) == ({0: 0, 1: 0}, {}), "only the marker is behind it"
    for _ in range(3):
        await log.write(400, commit=False)
    asked = await log.asked()
    assert (asked.waiting, asked.at_most) == ({0: 0, 1: 0}, frozenset())
    await log.write(3)
    asked = await log.asked()
    assert (asked.waiting, asked.waiting_in_words()) == ({0: 3, 1: 3}, "6")


async def test_what_is_too_much_to_count_is_said_to_be_a_bound(
    log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(groups, "COUNTED_BYTES", 0)
    await log.write(2)
    asked = await log.asked()
    assert (asked.waiting, asked.at_most) == ({0: 3, 1: 3}, {0, 1})
    assert asked.waiting_in_words() == "up to 6"
