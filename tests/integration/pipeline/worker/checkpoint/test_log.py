"""Checkpoints on a real broker: all or nothing, one writer, the last value of each key."""

from __future__ import annotations

import asyncio
import secrets
from typing import Any, Literal

import msgspec
import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.errors import ProducerFenced
from aiokafka.record.default_records import DefaultRecordBatch
from aiokafka.record.memory_records import MemoryRecords

from connectors.kafka.consumer import started_consumer
from connectors.kafka.topics import topic_name
from pipeline.errors import CheckpointFailed
from pipeline.kafka import checkpoints, topics
from pipeline.kafka.checkpoints import Loaded, load
from pipeline.kafka.committed import Committed, committed_before
from pipeline.local.broker.embedded import EmbeddedBroker
from pipeline.worker.checkpoint import log as log_module
from pipeline.worker.checkpoint.log import CheckpointLog, Record
from schemas.settings import Kafka, Settings


class Partition:
    """Partition 3 of a fresh set of topics."""

    number = 3

    def __init__(self, broker: EmbeddedBroker) -> None:
        name = f"checkpoints_{secrets.token_hex(4)}"
        self.kafka = Kafka(bootstrap_servers=broker.bootstrap_servers, topic_prefix=name, group=name)
        self.source = topic_name(self.kafka, "events")
        self.checkpoints = topic_name(self.kafka, "checkpoints_replica")
        self.residency = topic_name(self.kafka, "residency")

    async def log(self) -> CheckpointLog:
        log = CheckpointLog(self.kafka, group="g", topic=self.source, partition=self.number)
        await log.open()
        return log

    async def loaded(self) -> Loaded:
        [(number, loaded)] = [
            found
            async for found in load(
                self.kafka, topic=self.source, checkpoints=self.checkpoints, partitions=[self.number]
            )
        ]
        assert number == self.number
        return loaded

    def record(self, key: bytes, value: bytes) -> Record:
        return Record(self.checkpoints, self.number, key, value)


@pytest.fixture
async def partition(broker: EmbeddedBroker) -> Partition:
    partition = Partition(broker)
    await topics.apply(Settings(kafka=partition.kafka))
    return partition


async def test_last_committed_values_and_offset_are_there(partition: Partition) -> None:
    log = await partition.log()
    assert (await partition.loaded()).latest == {}
    await log.commit(5, [partition.record(b"a", b"1"), partition.record(b"b", b"1")])
    await log.commit(9, [partition.record(b"a", b"2"), Record(partition.residency, 0, b"k", b"out")])
    await log.close()
    assert (await partition.loaded()).latest == {b"a": b"2", b"b": b"1"}
    numbers = [0, partition.number]
    found = await committed_before(partition.kafka, "g", partition.source, numbers)
    assert {number: one.offset for number, one in found.items()} == {0: 0, partition.number: 9}
    assert await committed_before(partition.kafka, "never seen", partition.source, [0]) == {0: Committed()}
    async with started_consumer(
        bootstrap_servers=partition.kafka.bootstrap_servers, group_id="g", enable_auto_commit=False
    ) as consumer:
        assert await consumer.committed(TopicPartition(partition.source, partition.number)) == 9


@pytest.mark.parametrize("compressed", [False, True])
async def test_a_large_checkpoint_goes_out_in_portions(
    partition: Partition, monkeypatch: pytest.MonkeyPatch, compressed: bool
) -> None:
    waiting = most = 0
    sending = CheckpointLog._sent
    size = log_module.PORTION_BYTES // 3 + 1
    waiting = most = 0

    async def noted(log: CheckpointLog, producer: Any, portion: Any) -> Any:
        """Each is a batch of its own: two would be larger than one may be."""
        nonlocal waiting, most
        async for sent in sending(log, producer, portion):
            waiting += size
            most = max(most, waiting)
            sent.add_done_callback(answered)
            yield sent

    def answered(future: Any) -> None:
        nonlocal waiting
        waiting -= size

    monkeypatch.setattr(CheckpointLog, "_sent", noted)
    values = [bytes([number]) * size for number in range(20)]
    log = await partition.log()
    places = [TopicPartition(partition.residency, number) for number in range(8)]
    records = [
        Record(partition.residency, at % 8, b"3", value, compressed) for at, value in enumerate(values)
    ]
    await log.commit(5, records)
    await log.close()
    got: dict[int, list[bytes]] = {}
    async with started_consumer(
        bootstrap_servers=partition.kafka.bootstrap_servers, isolation_level="read_committed"
    ) as consumer:
        consumer.assign(places)
        await consumer.seek_to_beginning()
        while sum(map(len, got.values())) < len(values):
            for place, records in (await consumer.getmany(timeout_ms=500)).items():
                got.setdefault(place.partition, []).extend(record.value for record in records)
    assert got == {number: values[number::8] for number in range(8)}
    committed = await committed_before(partition.kafka, "g", partition.source, [partition.number])
    assert committed[partition.number].offset == 5
    assert (waiting, most) == (0, 3 * size)


@pytest.mark.parametrize("compression", ["zstd", "none"])
async def test_outputs_are_compressed_where_records_are_and_checkpoints_never(
    broker: EmbeddedBroker, partition: Partition, compression: Literal["zstd", "none"]
) -> None:
    value = bytes(range(256)) * 40
    large = bytes(range(256)) * 12_000  # more than a batch of several records has
    partition.kafka = msgspec.structs.replace(partition.kafka, compression=compression)
    log = await partition.log()
    sent = ((1, value), (1, value), (2, large))
    outputs = [Record(partition.residency, shard, b"k", each, compressed=True) for shard, each in sent]
    await log.commit(5, [partition.record(b"a", value), *outputs])
    await log.close()
    assert (await partition.loaded()).latest == {b"a": value}
    assert _written(broker, partition.checkpoints, partition.number) == [(0, [value])]
    codec = DefaultRecordBatch.CODEC_ZSTD if compression == "zstd" else DefaultRecordBatch.CODEC_NONE
    assert _written(broker, partition.residency, 1) == [(codec, [value, value])]
    assert _written(broker, partition.residency, 2) == [(codec, [large])]


def _written(broker: EmbeddedBroker, topic: str, partition: int) -> list[tuple[int, list[bytes | None]]]:
    """Return the codec and the values of each batch in the segments of a partition."""
    [directory] = broker.directory.glob(f"**/{topic}-{partition}")
    found = []
    for segment in sorted(directory.glob("*.log")):
        batches = MemoryRecords(segment.read_bytes())
        while (batch := batches.next_batch()) is not None:
            if not batch.is_control_batch:
                found.append((batch.compression_type, [record.value for record in batch]))
    return found


async def test_first_checkpoint_cut_short_does_not_keep_the_next_owner_from_loading(
    partition: Partition,
) -> None:
    """The partition then holds nothing but what is skipped, and those behind it hold nothing."""
    old = await partition.log()
    producer = old._producer
    assert producer is not None
    await producer.begin_transaction()
    await producer.send_and_wait(partition.checkpoints, b"half", key=b"a", partition=partition.number)
    new = await partition.log()

    async def load_all() -> dict[int, dict[bytes, bytes]]:
        found = load(
            partition.kafka, topic=partition.source, checkpoints=partition.checkpoints, partitions=range(8)
        )
        return {number: dict(loaded.latest) async for number, loaded in found}

    loading = asyncio.create_task(load_all())
    # Not wait_for: the cancelling it does would set going again what stands still.
    await asyncio.wait([loading], timeout=60)
    assert loading.done()
    assert loading.result() == {number: {} for number in range(8)}
    await new.close()


async def test_new_owner_fences_the_old_one(partition: Partition) -> None:
    old = await partition.log()
    await old.commit(1, [partition.record(b"a", b"old")])
    new = await partition.log()
    with pytest.raises(CheckpointFailed) as raised:
        await old.commit(2, [partition.record(b"a", b"zombie")])
    assert raised.value.fenced
    await new.commit(2, [partition.record(b"a", b"new")])
    assert (await partition.loaded()).latest == {b"a": b"new"}
    await new.close()


async def test_half_a_checkpoint_never_counts(partition: Partition) -> None:
    old = await partition.log()
    await old.commit(1, [partition.record(b"a", b"old")])
    producer = old._producer
    assert producer is not None
    await producer.begin_transaction()
    await producer.send_and_wait(partition.checkpoints, b"half", key=b"a", partition=partition.number)
    new = await partition.log()
    assert (await partition.loaded()).latest == {b"a": b"old"}
    # The frozen owner wakes up and goes on where it was.
    with pytest.raises(ProducerFenced):
        await producer.commit_transaction()
    assert (await partition.loaded()).latest == {b"a": b"old"}
    await new.close()


async def test_oldest_offset_of_the_source_is_told(partition: Partition) -> None:
    async with AIOKafkaProducer(bootstrap_servers=partition.kafka.bootstrap_servers) as producer:
        for number in range(4):
            await producer.send_and_wait(partition.source, b"%d" % number, partition=partition.number)
    assert (await partition.loaded()).beginning == 0


async def test_partitions_with_checkpoints_are_loaded_without_waiting_for_one_another(
    partition: Partition, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int] = []

    def consumer(**options: Any) -> AIOKafkaConsumer:
        asked.append(options["fetch_max_wait_ms"])
        return AIOKafkaConsumer(**options)

    monkeypatch.setattr(checkpoints, "AIOKafkaConsumer", consumer)
    numbers = range(8)
    for number in numbers:
        log = CheckpointLog(partition.kafka, group="g", topic=partition.source, partition=number)
        await log.open()
        for value in range(3):
            await log.commit(0, [Record(partition.checkpoints, number, b"k", b"%d" % value)])
        await log.close()
    latest = {}
    async for number, loaded in load(
        partition.kafka, topic=partition.source, checkpoints=partition.checkpoints, partitions=numbers
    ):
        latest[number] = loaded.latest
        await asyncio.sleep(0.02)  # the state is restored: the consumer asks for more, and there is none
    assert latest == {number: {b"k": b"2"} for number in numbers}
    # Brokers hold such a fetch for half a second by default, and then no partition takes less than that.
    assert len(asked) == 1
    assert asked[0] <= 50
