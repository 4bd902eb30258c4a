"""Fetched records on their way through Faust: many in one message, because each message costs the same."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from faust.types import TP
from faust.types.tuples import ConsumerMessage

from pipeline.kafka.portions import in_portions

CHUNK_RECORDS = 2048
"""Records applied in one go: they hold up the event loop for 30 ms, or 100 if windows of many sources end."""

FetchedRecord = Any
"""A record as aiokafka reads it, or as it gives it to users."""


class Chunk(ConsumerMessage):
    """A Faust message that carries several records of a partition, in the order of the log."""

    __slots__ = ("records",)

    def __init__(self, topic_partition: TP, records: Sequence[FetchedRecord], generation_id: int) -> None:
        """`generation_id`: of the group when the records were fetched. There is at least one record."""
        first = records[0]
        super().__init__(
            topic_partition.topic,
            topic_partition.partition,
            first.offset,
            first.timestamp / 1000,
            first.timestamp_type,
            headers=None,
            key=None,
            value=None,
            checksum=None,
            tp=topic_partition,
            generation_id=generation_id,
        )
        self.records = records


def in_turns(
    fetched: Mapping[TP, Sequence[FetchedRecord]], chunk_bytes: int
) -> Iterator[tuple[TP, Sequence[FetchedRecord]]]:
    """Yield what was fetched in portions, taking partitions in turn.

    A portion ends with the record that brings it to `chunk_bytes` of keys and values, if not before.
    """
    waiting = deque(
        (
            topic_partition,
            in_portions(records, _size_of, most_bytes=chunk_bytes, most_records=CHUNK_RECORDS),
        )
        for topic_partition, records in fetched.items()
    )
    while waiting:
        topic_partition, portions = waiting.popleft()
        portion = next(portions, None)
        if portion is not None:
            yield topic_partition, portion
            waiting.append((topic_partition, portions))


def _size_of(record: FetchedRecord) -> int:
    return len(record.key or b"") + len(record.value or b"")
