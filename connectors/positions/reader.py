"""Reads where sources are in the log: the positions topic, then what came after it in the events topic."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Protocol, TypeVar

import msgspec
from aiokafka import AIOKafkaConsumer, TopicPartition

from connectors.kafka.consumer import STOP_SECONDS, stop_consumer
from connectors.kafka.encoding import JSON, UNDECODABLE
from connectors.kafka.errors import KAFKA_FAILURES, failure_reason
from connectors.kafka.private import client_of
from connectors.kafka.security import client_options
from connectors.kafka.topic_metadata import topic_metadata
from connectors.order.records import Mention
from connectors.positions.backwards import Backwards
from connectors.positions.ledger import advance, progress
from connectors.sources import SourceKey, SourcesNotAdded
from schemas.events import Batch, Closed, DpRank, Fingerprint, Incarnation, Name, Seq, Total
from schemas.json_form import batch_from_json
from schemas.positions import PositionRecord, position_key
from schemas.settings import Kafka
from schemas.wire_prefix import json_decoder

STILL_SECONDS = 20.0
"""How long Kafka may take for one answer."""
TAIL_SECONDS = 30.0
"""How long the events topic is read for what the stored positions do not know yet."""
HORIZON_SECONDS = 60.0
"""A live owner writes all its positions far more often (`keeper.REFRESH_EVERY`), so events of a source that
were published later than this after a position are not that owner's."""
PART_RECORDS = 1000
"""Size of the first part of a partition that is read backwards; each next one has twice as many records."""
MOST_PART_RECORDS = 4000
FETCH_BYTES = 8 << 20
_POLL_MS = 500

Value = TypeVar("Value")


class PositionsUnreadable(SourcesNotAdded):
    """The start positions cannot be read from Kafka."""

    heals = True
    topic: str
    reason: str
    line = (
        "cannot read from topic {topic} where to continue ({reason}); "
        "the connector needs Read and Describe on it"
    )


class ReaderTelemetry(Protocol):
    """Where the reader reports what it has to leave out."""

    def position_unusable(self, source: str, reason: str) -> None: ...
    def positions_inexact(self, partition: int, offset: int, end: int) -> None: ...


class Topic(NamedTuple):
    """A topic that is read."""

    name: str
    partitions: int


LogPoint = tuple[int, float]
"""An offset of the events topic, and when a connector was there: seconds since the epoch."""


@dataclass(frozen=True, slots=True)
class Stored:
    """A position as it was found in the positions topic."""

    position: PositionRecord
    written_at: float
    """Seconds since the epoch, by the clock of its writer."""
    others: tuple[LogPoint, ...] = ()
    """Where other connectors that read the source as well were in the log. The position does not account for
    what they published behind that."""

    @property
    def point(self) -> LogPoint:
        """Where its writer was, and when."""
        return self.position.offset, self.written_at


class Found:
    """The positions of one source that connectors wrote, in the order of the topic. Pure."""

    def __init__(self) -> None:
        self._furthest: Stored | None = None
        self._points: dict[str, LogPoint] = {}
        self._seen: set[str] = set()

    def add(self, stored: Stored) -> None:
        """Add the next one."""
        writer = stored.position.connector
        if writer not in self._seen:
            # A connector that begins has read what others published before; live ones may publish more.
            self._seen.add(writer)
            offset, now = stored.point
            self._points = {
                other: (offset, written_at)
                for other, (_, written_at) in self._points.items()
                if now <= written_at + HORIZON_SECONDS
            }
        self._points[writer] = stored.point
        if self._furthest is None or progress(stored.position) >= progress(self._furthest.position):
            self._furthest = stored

    @property
    def furthest(self) -> Stored | None:
        """The position that counts, with where the other writers were."""
        best = self._furthest
        if best is None:
            return None
        own = best.position.connector
        others = tuple(point for writer, point in self._points.items() if writer != own)
        return replace(best, others=others)


class PositionReader:
    """Reads without a consumer group; one call at a time."""

    def __init__(
        self, settings: Kafka, *, events: Topic, positions: Topic, telemetry: ReaderTelemetry
    ) -> None:
        self._events = events
        self._positions = positions
        self._telemetry = telemetry
        self._arguments = client_options(settings)
        self._consumer: AIOKafkaConsumer | None = None

    async def start(self) -> None:
        """Connect. Raises PositionsUnreadable."""
        consumer = AIOKafkaConsumer(
            **self._arguments,
            enable_auto_commit=False,
            auto_offset_reset="earliest",
            fetch_max_wait_ms=100,
            max_partition_fetch_bytes=FETCH_BYTES,
        )
        try:
            await _answered(self._positions.name, consumer.start())
        except BaseException:
            await stop_consumer(consumer)
            raise
        self._consumer = consumer

    async def stop(self, seconds: float = STOP_SECONDS) -> None:
        """Disconnect, within so many seconds."""
        if self._consumer is not None:
            await stop_consumer(self._consumer, seconds)
            self._consumer = None

    async def stored(self) -> dict[SourceKey, Stored]:
        """Return the latest position of every source. Raises PositionsUnreadable.

        If several connectors read one engine, the one that lags may write last, so the furthest position
        counts. A record that cannot be decoded is reported; its source stays unknown.
        """
        found: dict[bytes, Found] = {}
        for topic_partition, end in (await self._ends(self._positions)).items():
            async for message in self._scan(topic_partition, 0, end):
                stored = self._stored(message)
                if stored is None:
                    found.pop(message.key, None)
                else:
                    found.setdefault(message.key, Found()).add(stored)
        self._connected().unsubscribe()
        furthest = (of_source.furthest for of_source in found.values())
        return {each.position.source: each for each in furthest if each is not None}

    async def topic_id(self) -> str:
        """Return the id of the events topic, empty where brokers have none. Raises PositionsUnreadable."""
        name = self._events.name
        found = await _answered(name, topic_metadata(client_of(self._connected()), [name]))
        return found[name].id

    async def ends(self) -> dict[int, int]:
        """Return the next offset of each partition of the events topic. Raises PositionsUnreadable."""
        ends = await self._ends(self._events)
        return {topic_partition.partition: end for topic_partition, end in ends.items()}

    async def follow(self, stored: Iterable[Stored], ends: Mapping[int, int]) -> None:
        """Advance positions by what the events topic has of their sources, behind them and behind `others`,
        up to `ends`.

        A partition is read from the smallest of these offsets; where nothing relevant can follow, reading
        continues at the next of them. Raises PositionsUnreadable.
        """
        by_partition: dict[int, list[Stored]] = {}
        for item in stored:
            by_partition.setdefault(item.position.partition, []).append(item)
        deadline = time.monotonic() + TAIL_SECONDS
        for partition, items in by_partition.items():
            await self._follow(partition, items, ends[partition], deadline)
        self._connected().unsubscribe()

    async def by_the_log(self, ends: Mapping[int, int]) -> list[PositionRecord]:
        """Return the positions of all sources in the events topic before `ends`.

        Reads newest records first, because connectors publish of each source every ten seconds, and gives up
        after TAIL_SECONDS: what is older then is reported as not read. Raises PositionsUnreadable.
        """
        deadline = time.monotonic() + TAIL_SECONDS
        topic_partitions = [TopicPartition(self._events.name, partition) for partition in ends]
        asking = self._connected().beginning_offsets(topic_partitions)
        begins: dict[TopicPartition, int] = await _answered(self._events.name, asking)
        read = {at: Backwards(at.partition, ends[at.partition]) for at in begins}
        left = {at: ends[at.partition] for at in begins}
        size = PART_RECORDS
        while left := {at: end for at, end in left.items() if end > begins[at]}:
            if time.monotonic() > deadline:
                for at, end in left.items():
                    self._telemetry.positions_inexact(at.partition, begins[at], end)
                    read[at].given_up()
                break
            for at, end in left.items():
                left[at] = max(begins[at], end - size)
                await self._read_part(read[at], at, left[at], end)
            size = min(2 * size, MOST_PART_RECORDS)
        self._connected().unsubscribe()
        return [position for partition in read.values() for position in partition.positions.values()]

    async def written_since(self, offsets: Mapping[int, int]) -> tuple[list[Stored], dict[int, int]]:
        """Return positions written from these offsets of the positions topic on, and the next offsets.

        Where a partition has no offset given, nothing of it is read. Raises PositionsUnreadable.
        """
        ends = await self._ends(self._positions)
        positions = []
        for topic_partition, end in ends.items():
            async for message in self._scan(
                topic_partition, offsets.get(topic_partition.partition, end), end
            ):
                stored = self._stored(message)
                if stored is not None:
                    positions.append(stored)
        self._connected().unsubscribe()
        return positions, {topic_partition.partition: end for topic_partition, end in ends.items()}

    async def _read_part(self, read: Backwards, at: TopicPartition, first: int, end: int) -> None:
        async for message in self._scan(at, first, end):
            if (mention := _mention(message)) is not None:
                read.add(mention)
        read.part_read()

    async def _follow(self, partition: int, items: list[Stored], end: int, deadline: float) -> None:
        positions = {item.position.source: item.position for item in items}
        keys = {replica.encode() for replica, _ in positions}
        points = {point for item in items for point in (item.point, *item.others)}
        starts = deque(sorted((offset + 1, written_at + HORIZON_SECONDS) for offset, written_at in points))
        topic_partition = TopicPartition(self._events.name, partition)
        while starts and starts[0][0] < end:
            first, until = starts.popleft()
            async for message in self._scan(topic_partition, first, end):
                if message.key in keys and (mention := _mention(message)) is not None:
                    position = positions.get(mention.source)
                    if position is not None:
                        # Records that it already accounts for do not move it.
                        advance(position, mention)
                while starts and starts[0][0] <= message.offset + 1:
                    until = max(until, starts.popleft()[1])
                if message.timestamp / 1000 > until:
                    break
                if time.monotonic() > deadline:
                    self._telemetry.positions_inexact(partition, message.offset, end)
                    return

    async def _ends(self, topic: Topic) -> dict[TopicPartition, int]:
        partitions = [TopicPartition(topic.name, partition) for partition in range(topic.partitions)]
        ends: dict[TopicPartition, int] = await _answered(
            topic.name, self._connected().end_offsets(partitions)
        )
        return ends

    async def _scan(self, topic_partition: TopicPartition, first: int, end: int) -> AsyncIterator[Any]:
        """Yield the records of a partition in [first, end) that retention and compaction have left."""
        if first >= end:
            return
        consumer = self._connected()
        consumer.assign([topic_partition])
        consumer.seek(topic_partition, first)
        stands_still_at = time.monotonic() + STILL_SECONDS
        position = first
        while position < end:
            try:
                found = await consumer.getmany(topic_partition, timeout_ms=_POLL_MS)
                next_position = await asyncio.wait_for(consumer.position(topic_partition), STILL_SECONDS)
            except KAFKA_FAILURES as error:
                raise PositionsUnreadable(topic_partition.topic, failure_reason(error)) from error
            for message in found.get(topic_partition, ()):
                if message.offset < end:
                    yield message
            if next_position > position:
                stands_still_at = time.monotonic() + STILL_SECONDS
                position = next_position
            elif time.monotonic() > stands_still_at:
                raise PositionsUnreadable(topic_partition.topic, f"nothing came for {STILL_SECONDS:.0f} s")

    def _stored(self, message: Any) -> Stored | None:
        """Return what a record of the positions topic says; None for a deletion, or if it is unusable."""
        if message.value is None:
            return None
        try:
            position = _decode_position(message.value)
        except UNDECODABLE:
            self._telemetry.position_unusable(repr(message.key), "undecodable")
            return None
        if position_key(*position.source) != message.key:
            self._telemetry.position_unusable(repr(message.key), "wrong_key")
            return None
        return Stored(position, message.timestamp / 1000)

    def _connected(self) -> AIOKafkaConsumer:
        if self._consumer is None:
            raise RuntimeError("read before the start")
        return self._consumer


class _Outline(msgspec.Struct, gc=False):
    """An events record whose batches are not decoded."""

    replica: Name
    dp_rank: DpRank
    incarnation: Incarnation
    batches: list[msgspec.Raw]
    last_seq: Seq | None = None
    last_fingerprint: Fingerprint = 0
    emitters: dict[Name, tuple[Total, Seq]] = {}


_decode_position = msgspec.msgpack.Decoder(PositionRecord).decode
_DECODERS: dict[bool, tuple[Callable[[bytes], _Outline], Callable[[Any], Batch]]] = {
    True: (json_decoder(_Outline), batch_from_json),
    False: (msgspec.msgpack.Decoder(_Outline).decode, msgspec.msgpack.Decoder(Batch).decode),
}


def _mention(message: Any) -> Mention | None:
    """Return what an events record says; None if it cannot be decoded: other readers skip it as well."""
    outline_of, batch_of = _DECODERS[dict(message.headers).get("content-type") == JSON]
    try:
        outline = outline_of(message.value or b"")
        events = batch_of(outline.batches[-1]).events if outline.batches else []
    except UNDECODABLE:
        return None
    return Mention(
        (outline.replica, outline.dp_rank),
        outline.incarnation,
        outline.last_seq,
        outline.last_fingerprint,
        bool(events) and type(events[-1]) is Closed,
        outline.emitters,
    )


async def _answered(topic: str, asking: Awaitable[Value]) -> Value:
    try:
        return await asyncio.wait_for(asking, STILL_SECONDS)
    except KAFKA_FAILURES as error:
        raise PositionsUnreadable(topic, failure_reason(error)) from error
