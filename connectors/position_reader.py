"""Read where sources are in the log: the positions topic, then what came after it in the events topic."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, TypeVar

import msgspec
from aiokafka import AIOKafkaConsumer, TopicPartition

from connectors.kafka_errors import KAFKA_FAILURES, failure_reason
from connectors.position_ledger import Mention, advance
from connectors.security import client_arguments
from connectors.source import SourceKey
from connectors.topics import CONTENT_TYPES
from schemas.events import Batch, Closed
from schemas.positions import PositionRecord, position_key
from schemas.settings import Kafka

STILL_SECONDS = 20.0
"""How long Kafka may take for one answer."""
TAIL_SECONDS = 30.0
"""How long the events topic is read for what the stored positions do not know yet."""
HORIZON_SECONDS = 60.0
"""An owner that lives writes all its positions far more often: events of a source that were published later
than this after its position are none of that owner's."""
STOP_SECONDS = 2.0
FETCH_BYTES = 8 << 20
_POLL_MS = 500

Value = TypeVar("Value")


class PositionsUnreadable(Exception):
    """Kafka does not give what the start positions are read from."""

    def __init__(self, topic: str, reason: str) -> None:
        super().__init__(topic, reason)
        self.topic = topic
        self.reason = reason

    def __str__(self) -> str:
        return (
            f"cannot read from topic {self.topic} where to continue ({self.reason}); "
            "the connector needs Read and Describe on it"
        )


class ReaderTelemetry(Protocol):
    """Where the reader tells what it has to leave out."""

    def position_unusable(self, source: str, reason: str) -> None: ...
    def positions_inexact(self, partition: int, offset: int, end: int) -> None: ...


class Topic(NamedTuple):
    """A topic that is read."""

    name: str
    partitions: int


@dataclass(frozen=True, slots=True)
class Stored:
    """A position as it was found in the positions topic."""

    position: PositionRecord
    written_at: float
    """Seconds since the epoch, by the clock of its writer."""


class PositionReader:
    """Reads without a consumer group; one call at a time."""

    def __init__(
        self, settings: Kafka, *, events: Topic, positions: Topic, telemetry: ReaderTelemetry
    ) -> None:
        self._events = events
        self._positions = positions
        self._telemetry = telemetry
        self._arguments = client_arguments(settings)
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
            await consumer.stop()
            raise
        self._consumer = consumer

    async def stop(self) -> None:
        """Disconnect."""
        if self._consumer is not None:
            with contextlib.suppress(*KAFKA_FAILURES):
                await asyncio.wait_for(self._consumer.stop(), STOP_SECONDS)
            self._consumer = None

    async def stored(self) -> dict[SourceKey, Stored]:
        """Return the newest position of every source. Raises PositionsUnreadable.

        A record that cannot be understood is told and leaves its source unknown.
        """
        found: dict[bytes, Stored | None] = {}
        for place, end in (await self._ends(self._positions)).items():
            async for message in self._scan(place, 0, end):
                found[message.key] = self._stored(message)
        self._connected().unsubscribe()
        return {
            (stored.position.replica, stored.position.dp_rank): stored
            for stored in found.values()
            if stored is not None
        }

    async def ends(self) -> dict[int, int]:
        """Return the next offset of each partition of the events topic. Raises PositionsUnreadable."""
        ends = await self._ends(self._events)
        return {place.partition: end for place, end in ends.items()}

    async def follow(self, stored: Iterable[Stored], ends: Mapping[int, int]) -> None:
        """Move positions by what the events topic holds of their sources behind them, up to `ends`.

        A partition is read from the smallest offset; where nothing of interest can come any more, reading
        goes on at the next one. Raises PositionsUnreadable.
        """
        by_partition: dict[int, list[Stored]] = {}
        for item in stored:
            by_partition.setdefault(item.position.partition, []).append(item)
        deadline = time.monotonic() + TAIL_SECONDS
        for partition, items in by_partition.items():
            await self._follow(partition, items, ends[partition], deadline)
        self._connected().unsubscribe()

    async def written_since(self, offsets: Mapping[int, int]) -> tuple[list[PositionRecord], dict[int, int]]:
        """Return positions written from these offsets of the positions topic on, and the next offsets.

        Where a partition has no offset given, nothing of it is read. Raises PositionsUnreadable.
        """
        ends = await self._ends(self._positions)
        positions = []
        for place, end in ends.items():
            async for message in self._scan(place, offsets.get(place.partition, end), end):
                stored = self._stored(message)
                if stored is not None:
                    positions.append(stored.position)
        self._connected().unsubscribe()
        return positions, {place.partition: end for place, end in ends.items()}

    async def _follow(self, partition: int, items: list[Stored], end: int, deadline: float) -> None:
        positions = {(item.position.replica, item.position.dp_rank): item.position for item in items}
        keys = {replica.encode() for replica, _ in positions}
        starts = deque(
            sorted((item.position.offset + 1, item.written_at + HORIZON_SECONDS) for item in items)
        )
        place = TopicPartition(self._events.name, partition)
        while starts and starts[0][0] < end:
            first, until = starts.popleft()
            async for message in self._scan(place, first, end):
                if message.key in keys and (mention := _mention(message)) is not None:
                    position = positions.get(mention.source)
                    if position is not None and message.offset > position.offset:
                        advance(position, mention)
                while starts and starts[0][0] <= message.offset + 1:
                    until = max(until, starts.popleft()[1])
                if message.timestamp / 1000 > until:
                    break
                if time.monotonic() > deadline:
                    self._telemetry.positions_inexact(partition, message.offset, end)
                    return

    async def _ends(self, topic: Topic) -> dict[TopicPartition, int]:
        places = [TopicPartition(topic.name, partition) for partition in range(topic.partitions)]
        ends: dict[TopicPartition, int] = await _answered(topic.name, self._connected().end_offsets(places))
        return ends

    async def _scan(self, place: TopicPartition, first: int, end: int) -> AsyncIterator[Any]:
        """Yield the records of a partition in [first, end) that retention and compaction have left."""
        if first >= end:
            return
        consumer = self._connected()
        consumer.assign([place])
        consumer.seek(place, first)
        stands_still_at = time.monotonic() + STILL_SECONDS
        position = first
        while position < end:
            try:
                found = await consumer.getmany(place, timeout_ms=_POLL_MS)
                next_position = await asyncio.wait_for(consumer.position(place), STILL_SECONDS)
            except KAFKA_FAILURES as error:
                raise PositionsUnreadable(place.topic, failure_reason(error)) from error
            for message in found.get(place, ()):
                if message.offset < end:
                    yield message
            if next_position > position:
                stands_still_at = time.monotonic() + STILL_SECONDS
                position = next_position
            elif time.monotonic() > stands_still_at:
                raise PositionsUnreadable(place.topic, f"nothing came for {STILL_SECONDS:.0f} s")

    def _stored(self, message: Any) -> Stored | None:
        """Return what a record of the positions topic says; None for a deletion, or if it says nothing."""
        if message.value is None:
            return None
        try:
            position = _decode_position(message.value)
        except msgspec.MsgspecError:
            self._telemetry.position_unusable(repr(message.key), "undecodable")
            return None
        if position_key(position.replica, position.dp_rank) != message.key:
            self._telemetry.position_unusable(repr(message.key), "wrong_key")
            return None
        return Stored(position, message.timestamp / 1000)

    def _connected(self) -> AIOKafkaConsumer:
        if self._consumer is None:
            raise RuntimeError("read before the start")
        return self._consumer


class _Outline(msgspec.Struct, gc=False):
    """An events record without looking into its batches."""

    replica: str
    dp_rank: int
    incarnation: int
    batches: list[msgspec.Raw]
    last_seq: int | None = None
    last_mark: int = 0


_decode_position = msgspec.msgpack.Decoder(PositionRecord).decode
_JSON = CONTENT_TYPES["json"]
_DECODERS: dict[bool, tuple[Callable[[bytes], _Outline], Callable[[Any], Batch]]] = {
    True: (msgspec.json.Decoder(_Outline).decode, msgspec.json.Decoder(Batch).decode),
    False: (msgspec.msgpack.Decoder(_Outline).decode, msgspec.msgpack.Decoder(Batch).decode),
}


def _mention(message: Any) -> Mention | None:
    """Return what an events record says; None if it cannot be decoded, as its readers leave it out, too."""
    outline_of, batch_of = _DECODERS[dict(message.headers).get("content-type") == _JSON]
    try:
        outline = outline_of(message.value)
        events = batch_of(outline.batches[-1]).events if outline.batches else []
    except msgspec.MsgspecError:
        return None
    return Mention(
        (outline.replica, outline.dp_rank),
        outline.incarnation,
        outline.last_seq,
        outline.last_mark,
        bool(events) and type(events[-1]) is Closed,
    )


async def _answered(topic: str, asking: Awaitable[Value]) -> Value:
    try:
        return await asyncio.wait_for(asking, STILL_SECONDS)
    except KAFKA_FAILURES as error:
        raise PositionsUnreadable(topic, failure_reason(error)) from error
