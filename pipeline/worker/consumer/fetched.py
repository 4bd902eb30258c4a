"""Fetched records on their way through Faust: many in one message, because each message costs the same."""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate
from operator import attrgetter
from typing import Any

import numpy as np
from faust.types import TP
from faust.types.tuples import ConsumerMessage

from pipeline.worker.set_aside import Offered

CHUNK_RECORDS = 2048
"""What is applied in one go keeps the event loop, for less than 50 ms."""

Record = Any
"""A record as aiokafka reads it, or as it gives it to users."""


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


def in_turns(
    fetched: Mapping[TP, Sequence[Record]], chunk_bytes: int
) -> Iterator[tuple[TP, Sequence[Record]]]:
    """Yield what was fetched in portions, one of each partition and then the next of each.

    A portion ends with the record that makes it `chunk_bytes` of keys and values, if not before.
    """
    waiting = deque(
        (topic_partition, _portions(records, chunk_bytes)) for topic_partition, records in fetched.items()
    )
    while waiting:
        topic_partition, portions = waiting.popleft()
        portion = next(portions, None)
        if portion is not None:
            yield topic_partition, portion
            waiting.append((topic_partition, portions))


def offered(records: Sequence[Record]) -> list[Offered]:
    """Return records as partitions get them."""
    offsets, values, headers, keys, times = zip(*map(_fields, records), strict=True)
    return [*map(Offered, offsets, values, headers, keys, (np.array(times) / 1000).tolist())]


def _portions(records: Sequence[Record], chunk_bytes: int) -> Iterator[Sequence[Record]]:
    sizes = (len(key or b"") + len(value or b"") for key, value in map(_contents, records))
    before, begin = [0, *accumulate(sizes)], 0
    while begin < len(records):
        end = min(begin + CHUNK_RECORDS, bisect_left(before, before[begin] + chunk_bytes), len(records))
        yield records[begin:end]
        begin = end


_fields = attrgetter("offset", "value", "headers", "key", "timestamp")
_contents = attrgetter("key", "value")
