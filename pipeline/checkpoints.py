"""One partition's checkpoints in Kafka: fenced on opening, read back whole, written in one transaction each.

The transactional id is bound to the source partition. Opening it makes the broker abort what a former owner
left open and refuse whatever it tries later, so a partition has one writer however late a frozen process wakes up.
A transaction holds the outputs, the checkpoint records and the source offset; either all of them count or none.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.errors import InvalidProducerEpoch, KafkaError, ProducerFenced

from pipeline.errors import CheckpointFailed, KafkaUnavailable, TopicMissing
from pipeline.kafka_security import client_options
from schemas.settings import Kafka

TRANSACTION_TIMEOUT_MS = 12_000
"""The broker aborts a transaction left open for so long; readers of committed records wait for it meanwhile."""
_REQUEST_TIMEOUT_MS = 10_000
_COMMIT_SECONDS = 30.0
_MAX_RECORD_BYTES = 8 << 20
_FETCH_BYTES = 8 << 20


@dataclass(frozen=True)
class Record:
    """One record of a transaction."""

    topic: str
    partition: int
    key: bytes
    value: bytes


@dataclass(frozen=True)
class Loaded:
    """What opening found."""

    latest: Mapping[bytes, bytes]
    """The last committed value of each key; empty at the very first start."""
    beginning: int
    """Oldest offset that the source partition still has."""
    end: int
    """Offset after its newest record."""
    checkpoint_bytes: int


class CheckpointLog:
    """Owns the checkpoints of (group, source topic, partition)."""

    def __init__(self, kafka: Kafka, *, group: str, source: str, checkpoints: str, partition: int) -> None:
        self.partition = partition
        self.source = source
        self._kafka = kafka
        self._group = group
        self._checkpoints = checkpoints
        self._producer: AIOKafkaProducer | None = None

    async def open(self) -> Loaded:
        """Fence former owners, then read every checkpoint record. Raises KafkaUnavailable, TopicMissing."""
        options = client_options(self._kafka)
        producer = AIOKafkaProducer(
            transactional_id=f"{self._group}-{self.source}-{self.partition}",
            transaction_timeout_ms=TRANSACTION_TIMEOUT_MS,
            request_timeout_ms=_REQUEST_TIMEOUT_MS,
            max_request_size=_MAX_RECORD_BYTES,
            max_batch_size=1 << 20,
            linger_ms=0,
            # Packed hashes hardly compress; the time is better spent elsewhere.
            compression_type=None,
            **options,
        )
        try:
            await producer.start()
            self._producer = producer
            return await self._load()
        except (KafkaError, OSError) as error:
            raise KafkaUnavailable(self._kafka.bootstrap_servers, _reason(error)) from error

    async def commit(self, next_offset: int, records: Sequence[Record]) -> None:
        """Commit the records and the offset together.

        Raises CheckpointFailed: the caller's state no longer matches the log then and must be dropped.
        """
        producer = self._producer
        if producer is None:
            raise CheckpointFailed(self.source, self.partition, "not open", fenced=False)
        try:
            await asyncio.wait_for(self._transaction(producer, next_offset, records), _COMMIT_SECONDS)
        except (ProducerFenced, InvalidProducerEpoch) as error:
            raise CheckpointFailed(self.source, self.partition, _reason(error), fenced=True) from error
        except asyncio.TimeoutError as error:
            reason = f"no answer within {_COMMIT_SECONDS:.0f} s"
            raise CheckpointFailed(self.source, self.partition, reason, fenced=False) from error
        except (KafkaError, OSError, ValueError) as error:
            raise CheckpointFailed(self.source, self.partition, _reason(error), fenced=False) from error

    async def _transaction(
        self, producer: AIOKafkaProducer, next_offset: int, records: Sequence[Record]
    ) -> None:
        await producer.begin_transaction()
        sent = [
            await producer.send(record.topic, record.value, key=record.key, partition=record.partition)
            for record in records
        ]
        await producer.send_offsets_to_transaction(
            {TopicPartition(self.source, self.partition): next_offset}, self._group
        )
        await asyncio.gather(*sent)
        await producer.commit_transaction()

    async def close(self) -> None:
        """Disconnect; nothing may be in flight."""
        producer, self._producer = self._producer, None
        if producer is not None:
            await producer.stop()

    async def _load(self) -> Loaded:
        consumer = AIOKafkaConsumer(
            isolation_level="read_committed",
            enable_auto_commit=False,
            max_partition_fetch_bytes=_FETCH_BYTES,
            request_timeout_ms=_REQUEST_TIMEOUT_MS,
            **client_options(self._kafka),
        )
        await consumer.start()
        try:
            checkpoints = TopicPartition(self._checkpoints, self.partition)
            source = TopicPartition(self.source, self.partition)
            existing = await consumer.topics()
            for topic in (checkpoints.topic, source.topic):
                if topic not in existing:
                    raise TopicMissing(topic)
            consumer.assign([checkpoints])
            beginning = await consumer.beginning_offsets([checkpoints, source])
            end = await consumer.end_offsets([checkpoints, source])
            latest, size = await _read(consumer, checkpoints, beginning[checkpoints], end[checkpoints])
            return Loaded(latest, beginning[source], end[source], size)
        finally:
            await consumer.stop()


async def _read(
    consumer: AIOKafkaConsumer, partition: TopicPartition, beginning: int, end: int
) -> tuple[dict[bytes, bytes], int]:
    """Return the last value of each key before `end`, and how many bytes were read."""
    latest: dict[bytes, bytes] = {}
    size = 0
    consumer.seek(partition, beginning)
    # The position passes the markers of transactions, which take offsets but are never delivered.
    while await consumer.position(partition) < end:
        batches = await consumer.getmany(partition, timeout_ms=500)
        for record in batches.get(partition, ()):
            latest[record.key] = record.value
            size += len(record.value)
    return latest, size


def _reason(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
