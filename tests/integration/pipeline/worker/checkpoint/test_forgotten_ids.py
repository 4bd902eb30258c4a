"""Brokers that have forgotten the transactional id of an idle partition, or the id of an idle producer."""

from __future__ import annotations

import asyncio
import gc
import secrets
from collections.abc import AsyncGenerator, Callable, Iterator, Sequence
from typing import Any

import pytest
import structlog
from aiokafka import AIOKafkaProducer, TopicPartition

from connectors.kafka.consumer import started_consumer
from connectors.kafka.topics import topic_name
from pipeline.errors import CheckpointFailed
from pipeline.kafka import topics
from pipeline.kafka.checkpoints import load
from pipeline.kafka.committed import committed_before
from pipeline.kafka.membership import may_join
from pipeline.worker.checkpoint.log import PORTION_BYTES, CheckpointLog, without_expected_warnings
from pipeline.worker.checkpoint.record import Record
from schemas.settings import Kafka, Settings
from tests.support.forgetful_broker import ForgetfulBroker


@pytest.fixture(scope="module")
def forgetful(
    tmp_path_factory: pytest.TempPathFactory, free_port: Callable[[], int]
) -> Iterator[ForgetfulBroker]:
    broker = ForgetfulBroker(tmp_path_factory.mktemp("forgetful"), free_port(), forgets_ms=2000)
    broker.start()
    yield broker
    broker.kill()


class Partition:
    """Partition 3 of a fresh set of topics."""

    number = 3

    def __init__(self, broker: ForgetfulBroker) -> None:
        name = f"forgotten_{secrets.token_hex(4)}"
        self.broker = broker
        self.kafka = Kafka(bootstrap_servers=broker.bootstrap_servers, topic_prefix=name, group=name)
        self.source = topic_name(self.kafka, "events")
        self.checkpoints = topic_name(self.kafka, "checkpoints_replica")

    async def taken_over(self) -> CheckpointLog:
        log = CheckpointLog(self.kafka, group="g", topic=self.source, partition=self.number)
        await log.open()
        found = await committed_before(self.kafka, "g", self.source, [self.number])
        log.continues(found[self.number])
        return log

    async def forget(self) -> None:
        await asyncio.sleep(self.broker.surely_forgotten_seconds)

    async def values(self) -> dict[bytes, bytes]:
        found = load(self.kafka, topic=self.source, checkpoints=self.checkpoints, partitions=[self.number])
        [(_, loaded)] = [one async for one in found]
        return dict(loaded.latest)

    async def offset(self) -> int:
        return (await committed_before(self.kafka, "g", self.source, [self.number]))[self.number].offset

    def record(self, value: bytes) -> Record:
        return Record(self.checkpoints, self.number, b"a", value)


@pytest.fixture
async def partition(forgetful: ForgetfulBroker) -> Partition:
    partition = Partition(forgetful)
    await topics.apply(Settings(kafka=partition.kafka))
    await may_join(partition.kafka, ["g"])  # waits for the broker's first group, as a worker does
    return partition


@pytest.mark.night
async def test_an_owner_goes_on_after_its_partition_was_idle(
    partition: Partition, caplog: pytest.LogCaptureFixture
) -> None:
    without_expected_warnings()
    log = await partition.taken_over()
    with structlog.testing.capture_logs() as said:
        for number in range(1, 4):  # the first one after no transaction at all
            await partition.forget()
            # Of several portions in the end: then it is one of them that fails first.
            records = [partition.record(b"%d" % number * (PORTION_BYTES - 10)) for _ in range(number)]
            await log.commit(number, records)
            await log.commit(number, [partition.record(b"%d" % number)])
            await log.commit(number, [])
            assert (await partition.values(), await partition.offset()) == ({b"a": b"%d" % number}, number)
    await log.close()
    gc.collect()
    warned = [line for line in said if "transactional.id.expiration.ms" in line["event"]]
    assert [(line["log_level"], line["partition"]) for line in warned] == [("warning", partition.number)] * 3
    assert [record.getMessage() for record in caplog.records if record.exc_info] == []


@pytest.mark.night
async def test_a_record_that_comes_after_the_brokers_answer_hides_nothing(
    partition: Partition, monkeypatch: pytest.MonkeyPatch
) -> None:
    """aiokafka refuses it with an error of its own, which is no KafkaError and names no cause."""
    without_expected_warnings()
    log = await partition.taken_over()
    await log.commit(1, [partition.record(b"old")])
    await partition.forget()
    send = CheckpointLog._sent

    async def late(
        self: CheckpointLog, producer: AIOKafkaProducer, portion: Sequence[Record]
    ) -> AsyncGenerator[asyncio.Future[Any], None]:
        async for sent in send(self, producer, portion):
            await asyncio.wait([sent], timeout=5.0)
            yield sent

    with monkeypatch.context() as patch:
        patch.setattr(CheckpointLog, "_sent", late)
        await log.commit(2, [partition.record(b"new"), partition.record(b"newer")])
    assert (await partition.values(), await partition.offset()) == ({b"a": b"newer"}, 2)
    await partition.forget()
    owner = await partition.taken_over()
    await owner.commit(3, [partition.record(b"newest")])
    with monkeypatch.context() as patch:
        patch.setattr(CheckpointLog, "_sent", late)
        with pytest.raises(CheckpointFailed) as failed:
            await log.commit(3, [partition.record(b"zombie"), partition.record(b"zombie")])
    assert failed.value.fenced
    assert (await partition.values(), await partition.offset()) == ({b"a": b"newest"}, 3)
    for one in (log, owner):
        await one.close()


@pytest.mark.night
async def test_the_frozen_one_of_two_owners_does_not_go_on(partition: Partition) -> None:
    """Whose id was forgotten and opened by another one gets the same answer as an idle owner."""
    frozen = await partition.taken_over()
    await frozen.commit(5, [partition.record(b"old")])
    await partition.forget()
    owner = await partition.taken_over()
    # Of the same offset: figures that go on without records are saved, too.
    await owner.commit(5, [partition.record(b"new")])
    with pytest.raises(CheckpointFailed) as failed:
        await frozen.commit(6, [partition.record(b"zombie")])
    assert failed.value.fenced
    assert (await partition.values(), await partition.offset()) == ({b"a": b"new"}, 5)
    # The frozen one fenced it on its way; so it ends too, and the next owner finds what was committed.
    with pytest.raises(CheckpointFailed) as failed:
        await owner.commit(7, [partition.record(b"newer")])
    assert failed.value.fenced
    last = await partition.taken_over()
    await last.commit(7, [partition.record(b"newest")])
    assert (await partition.values(), await partition.offset()) == ({b"a": b"newest"}, 7)
    for log in (frozen, owner, last):
        await log.close()


@pytest.mark.night
async def test_owners_without_transactions_go_on_as_well(partition: Partition) -> None:
    """As the connector and an index with choices write: an idempotent producer that was idle."""
    place = TopicPartition(partition.source, partition.number)
    producer = AIOKafkaProducer(
        bootstrap_servers=partition.kafka.bootstrap_servers, enable_idempotence=True, acks="all"
    )
    async with producer:
        for round_number in range(3):
            for number in range(2):
                value = b"%d" % (2 * round_number + number)
                await producer.send_and_wait(place.topic, value, partition=place.partition)
            await partition.forget()
    got: list[Any] = []
    async with started_consumer(bootstrap_servers=partition.kafka.bootstrap_servers) as consumer:
        consumer.assign([place])
        await consumer.seek_to_beginning(place)
        while len(got) < 6:
            got += [record.value for record in (await consumer.getmany(timeout_ms=500)).get(place, ())]
    assert got == [b"%d" % number for number in range(6)]
