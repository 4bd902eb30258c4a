"""Records packed into batches, so that the client does its work per batch, not per record."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from connectors.kafka.private import Batch, new_batch
from connectors.kafka.topics import catalogue, compression_of, topic_name
from pipeline.worker.checkpoint.record import Record
from schemas.settings import Kafka

BATCH_BYTES = 1 << 20

Place = tuple[str, int]
"""Topic and partition."""


def batches(records: Iterable[Record], kafka: Kafka, *, transactional: bool) -> Iterator[tuple[Place, Batch]]:
    """Yield full batches as they fill, the others at the end; those of a partition keep its order.

    They are compressed here, by topic: a producer has one compression, and a transaction one producer.
    """
    compressions = {topic_name(kafka, key): compression_of(kafka, key) for key in catalogue()}
    unfinished: dict[Place, Batch] = {}
    for record in records:
        place = record.topic, record.partition
        batch = unfinished.get(place)
        if batch is not None and _append(batch, record):
            continue
        if batch is not None:
            yield place, batch
        batch = unfinished[place] = new_batch(
            BATCH_BYTES, compressions[record.topic], transactional=transactional
        )
        _append(batch, record)
    yield from unfinished.items()


def _append(batch: Batch, record: Record) -> bool:
    """Return False where the batch has no room; an empty one takes any record."""
    added = batch.append(timestamp=None, key=record.key, value=record.value, headers=list(record.headers))
    return added is not None
