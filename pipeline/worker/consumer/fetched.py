"""Fetched records on their way through Faust: many in one message, because each message costs the same."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from faust.types import TP
from faust.types.tuples import ConsumerMessage

CHUNK_RECORDS = 512
CHUNK_BYTES = 256 << 10
"""Of keys and values: what is applied in one go keeps the event loop for a few milliseconds."""

Record = Any
"""A record as aiokafka gives it."""


class Chunk(ConsumerMessage):
    """A message of Faust's that stands for several records of a partition, in the order of the log."""

    __slots__ = ("records",)

    def __init__(self, topic_partition: TP, records: Sequence[Record], generation_id: int) -> None:
        """`generation_id`: of the group, when the records were fetched; at least one record."""
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


def in_turns(fetched: Mapping[TP, Sequence[Record]]) -> Iterator[tuple[TP, Sequence[Record]]]:
    """Yield what was fetched in portions, one of each partition and then the next of each."""
    waiting = deque((topic_partition, _portions(records)) for topic_partition, records in fetched.items())
    while waiting:
        topic_partition, portions = waiting.popleft()
        portion = next(portions, None)
        if portion is not None:
            yield topic_partition, portion
            waiting.append((topic_partition, portions))


def _portions(records: Sequence[Record]) -> Iterator[Sequence[Record]]:
    begin, size = 0, 0
    for at, record in enumerate(records):
        size += len(record.key or b"") + len(record.value or b"")
        if at + 1 - begin == CHUNK_RECORDS or size >= CHUNK_BYTES:
            yield records[begin : at + 1]
            begin, size = at + 1, 0
    if begin < len(records):
        yield records[begin:]
