"""aiokafka's clients, as far as kvlens uses them, over the broker of lists."""

from __future__ import annotations

import asyncio
import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from types import SimpleNamespace
from typing import Any, NamedTuple, cast

from aiokafka import TopicPartition
from aiokafka.errors import OffsetOutOfRangeError
from aiokafka.structs import OffsetAndMetadata

from connectors.kafka.topic_metadata import TopicMetadata
from tests.simulation.broker import Broker, Entry, Place
from tests.simulation.loop import Line, Process, here

_MOST_RECORDS = 500
_AT_ONCE_SECONDS = 2e-3


def broker_of(process: Process) -> Broker:
    """Return the cluster that a process is connected to."""
    return cast(Broker, cast(Any, process.world).broker)


class Message(NamedTuple):
    """A record as consumers get it."""

    topic: str
    partition: int
    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: Sequence[tuple[str, bytes]]
    timestamp_type: int = 1


def message(place: Place, entry: Entry) -> Message:
    """Return an entry of a log as a consumer gives it."""
    return Message(*place, entry.offset, entry.timestamp, entry.key, entry.value, entry.headers)


class Client:
    """What tells of topics."""

    def __init__(self, **options: Any) -> None:
        self._process = here()

    async def bootstrap(self) -> None: ...

    async def close(self) -> None: ...


async def topic_metadata(client: Client, names: Iterable[str]) -> dict[str, TopicMetadata]:
    """As that of `connectors/kafka`."""
    process = client._process
    topics = broker_of(process).topics
    return await process.request(lambda: {name: _metadata(name, topics.get(name, 0)) for name in names})


@lru_cache(maxsize=1 << 8)
def _metadata(name: str, partitions: int) -> TopicMetadata:
    return TopicMetadata(name, False, partitions, 1, 1, None, f"id of {name}")


class Batch:
    """Records that are sent together."""

    def __init__(self, size: int = 512 << 10, *options: Any, **more: Any) -> None:
        self.records: list[tuple[bytes | None, bytes | None, Sequence[tuple[str, bytes]]]] = []
        self._room = size

    def append(
        self,
        *,
        timestamp: int | None,
        key: bytes | None,
        value: bytes | None,
        headers: Sequence[tuple[str, bytes]] = (),
    ) -> object | None:
        size = len(key or b"") + len(value or b"")
        if self.records and size > self._room:
            return None
        self._room -= size
        self.records.append((key, value, headers))
        return self

    def close(self) -> None: ...


class Producer:
    """Idempotent, and transactional with an id."""

    def __init__(self, **options: Any) -> None:
        self._process = here()
        self._broker = broker_of(self._process)
        self._id: str | None = options.get("transactional_id")
        self._timeout = options.get("transaction_timeout_ms", 60_000) / 1000
        self._epoch = -1
        self._sent: list[asyncio.Future[Any]] = []
        self._lines: defaultdict[Place, Line] = defaultdict(Line)
        self.client = Client()
        self._txn_manager = SimpleNamespace(wait_for_transaction_end=self._process.create_future)

    async def start(self) -> None:
        if (of := self._id) is not None:
            self._epoch = await self._process.request(lambda: self._broker.init(of))

    async def stop(self) -> None:
        if self._sent:
            await asyncio.wait(self._sent)

    def create_batch(self) -> Batch:
        return Batch()

    async def send(
        self, topic: str, value: bytes | None, *, key: bytes | None, partition: int
    ) -> asyncio.Future[Any]:
        batch = Batch()
        batch.append(timestamp=None, key=key, value=value)
        return await self.send_batch(batch, topic, partition=partition)

    async def send_batch(self, batch: Batch, topic: str, *, partition: int) -> asyncio.Future[Any]:
        """Return what the acknowledgement will be told of; batches of a partition arrive in order."""
        place = (topic, partition)
        sent = self._process.request(lambda: self._append(batch, place), self._lines[place], "append")
        self._sent.append(sent)
        return sent

    def _append(self, batch: Batch, place: Place) -> SimpleNamespace:
        broker, of = self._broker, self._id
        if of is None:
            return SimpleNamespace(
                offset=broker.append(place, batch.records, late=not self._process.alive)[0].offset
            )
        added = [
            broker.append_in(of, self._epoch, place, key, value, timeout=self._timeout)
            for key, value, _ in batch.records
        ]
        return SimpleNamespace(offset=added[0].offset)

    async def begin_transaction(self) -> None: ...

    async def send_offsets_to_transaction(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata], group: str
    ) -> None:
        def add() -> None:
            for place, offset in offsets.items():
                self._broker.offset_in(
                    cast(str, self._id),
                    self._epoch,
                    group,
                    (place.topic, place.partition),
                    offset.offset,
                    offset.metadata,
                    timeout=self._timeout,
                )

        await self._process.request(add)

    async def commit_transaction(self) -> None:
        for sent in self._sent:
            await sent
        self._sent.clear()
        of, epoch = cast(str, self._id), self._epoch
        await self._process.request(lambda: self._broker.end(of, epoch, commit=True), what="commit")


class Consumer:
    """One without group membership: partitions are assigned by hand."""

    def __init__(self, *topics: str, **options: Any) -> None:
        self._process = here()
        self._broker = broker_of(self._process)
        self._client = Client()
        self._committed = options.get("isolation_level") == "read_committed"
        self._resets = options.get("auto_offset_reset", "latest") == "earliest"
        self._group = options.get("group_id")
        self._positions: dict[TopicPartition, int] = {}
        self._ends: dict[TopicPartition, tuple[int, int]] = {}
        self._nothing_at = -math.inf
        """When it last waited in vain: who asks again at once only waits."""

    async def start(self) -> None: ...

    async def stop(self) -> None: ...

    def assign(self, places: Iterable[TopicPartition]) -> None:
        self._positions = {place: self._positions.get(place, 0) for place in places}
        self._nothing_at = -math.inf

    def unsubscribe(self) -> None:
        self._positions = {}

    def seek(self, place: TopicPartition, offset: int) -> None:
        self._positions[place], self._nothing_at = offset, -math.inf

    async def seek_to_beginning(self, *places: TopicPartition) -> None:
        self._positions |= await self.beginning_offsets(places)

    async def position(self, place: TopicPartition) -> int:
        await asyncio.sleep(0)
        return self._positions[place]

    async def committed(self, place: TopicPartition) -> int | None:
        found = self._broker.committed
        key = (cast(str, self._group), (place.topic, place.partition))
        return await self._process.request(lambda: found[key][0] if key in found else None)

    async def beginning_offsets(self, places: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        log = self._broker.log
        wanted = list(places)
        return await self._process.request(
            lambda: {place: log[place.topic, place.partition].begin for place in wanted}
        )

    async def end_offsets(self, places: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        log, committed = self._broker.log, self._committed
        wanted = list(places)

        def ends() -> dict[TopicPartition, int]:
            found = {place: log[place.topic, place.partition] for place in wanted}
            return {place: one.stable if committed else one.end for place, one in found.items()}

        return await self._process.request(ends)

    def assignment(self) -> set[TopicPartition]:
        return {*self._positions}

    async def getmany(
        self, *places: TopicPartition, timeout_ms: int = 0, max_records: int = _MOST_RECORDS
    ) -> dict[TopicPartition, list[Message]]:
        """Return what is there, or else what is after the time given. Raises OffsetOutOfRangeError."""
        now = self._process.time
        asked = now() - self._nothing_at < _AT_ONCE_SECONDS and timeout_ms > 0
        found = {} if asked else await self._fetched(places, max_records)
        if not found and timeout_ms:
            await asyncio.sleep(timeout_ms / 1000)
            found = await self._fetched(places, max_records)
            self._nothing_at = -math.inf if found else now()
        return found

    async def _fetched(
        self, places: Sequence[TopicPartition], most: int
    ) -> dict[TopicPartition, list[Message]]:
        asked = {place: self._positions[place] for place in places or self._positions}

        def fetch() -> dict[TopicPartition, tuple[list[Entry], int, int] | None]:
            found: dict[TopicPartition, tuple[list[Entry], int, int] | None] = {}
            for place, offset in asked.items():
                log = self._broker.log[place.topic, place.partition]
                try:
                    entries, next_offset = self._broker.fetch(
                        (place.topic, place.partition), offset, committed=self._committed, most=most
                    )
                    found[place] = entries, next_offset, log.end
                except OffsetOutOfRangeError:
                    found[place] = None
            return found

        records: dict[TopicPartition, list[Message]] = {}
        for place, answer in (await self._process.request(fetch)).items():
            if self._positions.get(place) != asked[place]:
                continue
            if answer is None:
                if not self._resets:
                    raise OffsetOutOfRangeError({place: asked[place]})
                self._positions[place] = self._broker.log[place.topic, place.partition].begin
                continue
            entries, self._positions[place], end = answer
            self._ends[place] = end, round(cast(Any, self._process.world).wall() * 1000)
            if entries:
                records[place] = [message((place.topic, place.partition), entry) for entry in entries]
        return records

    def highwater(self, place: TopicPartition) -> int | None:
        return self._ends[place][0] if place in self._ends else None

    def last_poll_timestamp(self, place: TopicPartition) -> int | None:
        return self._ends[place][1] if place in self._ends else None


class Admin:
    """Asks for the offsets of groups."""

    def __init__(self, **options: Any) -> None:
        self._process = here()

    async def start(self) -> None: ...

    async def close(self) -> None: ...

    async def list_consumer_group_offsets(
        self, group: str, partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        committed = broker_of(self._process).committed
        wanted = list(partitions)

        def found() -> dict[TopicPartition, OffsetAndMetadata]:
            return {
                place: OffsetAndMetadata(*committed.get((group, (place.topic, place.partition)), (-1, "")))
                for place in wanted
            }

        return await self._process.request(found)
