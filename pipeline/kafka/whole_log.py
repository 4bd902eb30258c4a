"""Reads the events topic from all its partitions at once, in the order of the whole log."""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection, Hashable, Mapping
from typing import Any

from aiokafka import AIOKafkaConsumer, TopicPartition

from pipeline.kafka.decoding import outline_of
from pipeline.kafka.merging import Merge
from pipeline.kafka.stretch import WAIT_MS, Patience

AHEAD_SECONDS = 10.0
"""How far the log is read ahead of the next record: brokers' clocks may differ by as much."""
MOST_WAITING_BYTES = 128 << 20
"""Bytes read ahead; where as much lies closer together in time, the log is read less far ahead."""

Range = tuple[int, int]
"""Offsets: the first, and the one after the last."""


class WholeLog:
    """The records in ranges of partitions."""

    def __init__(self, consumer: AIOKafkaConsumer, ranges: Mapping[TopicPartition, Range]) -> None:
        """The consumer's assignment is replaced."""
        self._consumer = consumer
        self._ranges = {place: span for place, span in ranges.items() if span[0] < span[1]}
        self._reached = {place: first for place, (first, _) in self._ranges.items()}
        self._merge: Merge[Any] = Merge(place.partition for place in self._ranges)
        self._places = {place.partition: place for place in self._ranges}

    async def chunks(self, most: int) -> AsyncIterator[tuple[list[Any], dict[TopicPartition, int]]]:
        """Yield records, up to `most` at a time, with the offsets after them.

        Raises asyncio.TimeoutError when a partition makes no progress.
        """
        if not self._ranges:
            return
        self._consumer.assign(list(self._ranges))
        for place, (first, _) in self._ranges.items():
            self._consumer.seek(place, first)
        chunk: list[Any] = []
        while True:
            while wanted := self._wanted():
                await self._read(wanted)
            if (record := self._merge.next()) is not None:
                chunk.append(record)
            if chunk and (record is None or len(chunk) == most):
                yield chunk, self._behind(chunk)
                chunk = []
            if record is None:
                return

    def _wanted(self) -> Collection[int]:
        return self._merge.wanted(AHEAD_SECONDS if self._merge.waiting_bytes < MOST_WAITING_BYTES else 0.0)

    async def _read(self, partitions: Collection[int]) -> None:
        """Read something more of at least one of these partitions."""
        places = [self._places[partition] for partition in partitions]
        patience = Patience()
        moved = False
        while not moved:
            found = await self._consumer.getmany(*places, timeout_ms=WAIT_MS)
            for place in places:
                end = self._ranges[place][1]
                for record in found.get(place, ()):
                    if record.offset < end:
                        self._add(record)
                reached = min(await self._consumer.position(place), end)
                moved = moved or reached > self._reached[place]
                self._reached[place] = reached
                if reached == end:
                    self._merge.read_to_end(place.partition)
            if not moved:
                patience.stands(places[0], self._reached[places[0]])

    def _add(self, record: Any) -> None:
        outline = outline_of(record.value, record.headers)
        source: Hashable = (record.key,)
        if outline is not None:
            source = (record.key, outline.replica, outline.dp_rank)
        self._merge.add(
            record.partition,
            record,
            time=record.timestamp / 1000,
            size=len(record.value or b""),
            source=source,
            incarnation=outline.incarnation if outline else 0,
            seq=outline.last_seq if outline else None,
        )

    def _behind(self, chunk: list[Any]) -> dict[TopicPartition, int]:
        return {self._places[record.partition]: record.offset + 1 for record in chunk}
