"""What the last checkpoint of each partition saved, read back."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping, Sequence
from dataclasses import dataclass, field

import msgspec
from aiokafka import AIOKafkaConsumer, TopicPartition

from connectors.kafka.consumer import stop_consumer
from connectors.kafka.errors import KAFKA_FAILURES, failure_reason
from connectors.kafka.private import client_of
from connectors.kafka.security import client_options
from connectors.kafka.topic_metadata import topic_metadata
from pipeline.errors import CheckpointDamaged, CheckpointUnreadable, KafkaUnavailable, damaged_if_it_fails
from pipeline.kafka.stretch import stretch
from schemas.checkpoints import TOPICS_KEY, StateTopics
from schemas.settings import Kafka

_REQUEST_TIMEOUT_MS = 10_000
_FETCH_BYTES = 8 << 20
_FETCH_WAIT_MS = 20


@dataclass(frozen=True)
class Loaded:
    """What loading found."""

    latest: Mapping[bytes, bytes]
    """The last committed value of each key; empty at the very first start."""
    beginning: int
    """Oldest offset that the input partition still has."""
    end: int
    """Offset after its newest record."""
    topics: Mapping[str, str] = field(default_factory=dict)
    """Ids, by name, of the topics that the state belongs to; those that are not known are missing."""


async def load(
    kafka: Kafka, *, topic: str, checkpoints: str, partitions: Sequence[int]
) -> AsyncGenerator[tuple[int, Loaded], None]:
    """Yield what each partition's last checkpoint saved, one partition after the other.

    Call it when the partitions' checkpoint logs are open: former owners are fenced then.

    Raises KafkaUnavailable, TopicMissing, TopicHidden, CertificateUnreadable, CheckpointUnreadable.
    """
    consumer = AIOKafkaConsumer(
        isolation_level="read_committed",
        enable_auto_commit=False,
        # A log that lost its newest records, as after an unclean election, must not count as read to its end.
        auto_offset_reset="none",
        max_partition_fetch_bytes=_FETCH_BYTES,
        # A partition waits for the fetch that is still in flight from the one before.
        fetch_max_wait_ms=_FETCH_WAIT_MS,
        request_timeout_ms=_REQUEST_TIMEOUT_MS,
        **client_options(kafka),
    )
    try:
        await consumer.start()
        for found in (await topic_metadata(client_of(consumer), (checkpoints, topic))).values():
            found.require()
        saved = [TopicPartition(checkpoints, number) for number in partitions]
        inputs = {number: TopicPartition(topic, number) for number in partitions}
        begins = await consumer.beginning_offsets([*saved, *inputs.values()])
        ends = await consumer.end_offsets([*saved, *inputs.values()])
        for topic_partition in saved:
            number = topic_partition.partition
            latest = await _read(consumer, topic_partition, begins[topic_partition], ends[topic_partition])
            topics = _topics(checkpoints, number, latest.pop(TOPICS_KEY, None))
            yield number, Loaded(latest, begins[inputs[number]], ends[inputs[number]], topics)
    except KAFKA_FAILURES as error:
        raise KafkaUnavailable(kafka.bootstrap_servers, failure_reason(error)) from error
    finally:
        await stop_consumer(consumer)


def _topics(checkpoints: str, partition: int, value: bytes | None) -> Mapping[str, str]:
    if value is None:
        return {}
    try:
        with damaged_if_it_fails(TOPICS_KEY):
            return msgspec.msgpack.decode(value, type=StateTopics).ids
    except CheckpointDamaged as error:
        raise CheckpointUnreadable(checkpoints, partition, str(error)) from error


async def _read(
    consumer: AIOKafkaConsumer, partition: TopicPartition, beginning: int, end: int
) -> dict[bytes, bytes]:
    """Return the last value of each key before `end`. Raises asyncio.TimeoutError where the log stands."""
    latest: dict[bytes, bytes] = {}
    async for records in stretch(consumer, partition, beginning, end):
        for record in records:
            if record.value is None:
                latest.pop(record.key, None)
            else:
                latest[record.key] = record.value
    return latest
