"""Publish records to Kafka: idempotent, acknowledged by all replicas, in order per engine replica."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from aiokafka import AIOKafkaProducer

from connectors.kafka.cloud_events import Headers
from connectors.kafka.errors import (
    KAFKA_FAILURES,
    TOO_LARGE,
    BrokerUnreachable,
    LoginRefused,
    failure_reason,
    partition_known,
)
from connectors.kafka.reach import reach
from connectors.kafka.schema_registry import prefixes
from connectors.kafka.security import client_options
from connectors.kafka.topics import partition_of, topic_name
from connectors.order.records import Mention, mention_of
from connectors.process.backoff import Backoff
from connectors.process.stopping import ended
from connectors.process.tls_files import CertificateUnreadable
from connectors.publish.encoding import RecordEncoding
from connectors.publish.growth import Growth, GrowthTelemetry
from connectors.publish.producer import (
    RETRY_SECONDS,
    STOP_SECONDS,
    connected,
    looked_up,
    partitions_of,
    retired,
    stopped,
)
from schemas.events import EventsRecord
from schemas.settings import Settings

MAX_UNACKNOWLEDGED_BYTES = 32 << 20
"""Encoded records waiting for acknowledgement; beyond it `room` waits."""
START_SECONDS = 30.0
"""How long one try to connect a producer may take."""
DELAY_REPORT_SECONDS = 5.0
"""A batch unacknowledged for this long is reported, and again each time it passes."""
RETRY = Backoff(first=RETRY_SECONDS, longest=10.0)


class PublisherTelemetry(GrowthTelemetry, Protocol):
    """Where the publisher reports what happens."""

    def broker_unreachable(self, bootstrap_servers: str, reason: str) -> None: ...
    def published(self, records: int, size: int) -> None: ...
    def publish_delayed(self, partition: int, seconds: float, waiting_bytes: int) -> None: ...
    def publish_failed(self, partition: int, reason: str) -> None: ...
    def records_abandoned(self, records: int) -> None: ...


Acknowledged = Callable[[int, int, Sequence[Mention]], None]
"""Called in log order with (partition, offset of the last record or a negative number, records)."""


@dataclass(slots=True)  # frozen ones take three times as long to make
class _Outgoing:
    key: bytes
    value: bytes
    headers: Headers
    mention: Mention


class Publisher:
    """Sends what `add` is given, one batch in flight per partition, the same one until it is acknowledged.

    aiokafka itself repeats a batch with its sequence numbers until the broker has it, so a broker that cannot
    be reached causes neither loss nor repetition. Only if a producer itself breaks down does another one send
    the batch again; it may then be in the log twice, which readers recognise by (incarnation, seq).
    """

    def __init__(
        self,
        settings: Settings,
        telemetry: PublisherTelemetry,
        acknowledged: Acknowledged = lambda partition, offset, mentions: None,
    ) -> None:
        self._settings = settings
        self._kafka = settings.kafka
        self._tell_acknowledged = acknowledged
        self._telemetry = telemetry
        self.topic = topic_name(settings.kafka, "events")
        self._encoding = RecordEncoding(settings.kafka)
        self._lanes: list[_Lane] = []
        self._producer: AIOKafkaProducer | None = None
        self._replacing = asyncio.Lock()
        self._retiring: set[asyncio.Task[None]] = set()
        """Stops of replaced producers; other lanes may still have a batch in flight in them."""
        self.unacknowledged_bytes = 0
        self._changed = asyncio.Event()
        self._growth = Growth(
            self.topic, lambda: None if self._producer is None else self._producer.client, telemetry
        )
        self._watching: asyncio.Task[None] | None = None

    @property
    def unacknowledged_records(self) -> int:
        return sum(len(lane.waiting) for lane in self._lanes)

    @property
    def partitions(self) -> int:
        """Partitions of the topic; 0 before the start."""
        return len(self._lanes)

    @property
    def unknown_partitions(self) -> int:
        """Partitions added to the topic since the start; nothing is written to them."""
        return self._growth.unknown

    @property
    def tasks(self) -> list[asyncio.Task[None]]:
        """Tasks that run from the start to the stop; one that ends before has failed."""
        lanes = [lane.task for lane in self._lanes if lane.task is not None]
        return lanes if self._watching is None else [*lanes, self._watching]

    def is_idle(self, partition: int) -> bool:
        """Tell whether every record of a partition is acknowledged."""
        return not self._lanes[partition].waiting

    def mark(self) -> list[int]:
        """Return a mark for `passed`: how many records were added for each partition so far."""
        return [lane.acknowledged + len(lane.waiting) for lane in self._lanes]

    def passed(self, mark: list[int]) -> bool:
        """Tell whether everything that was added before a mark is acknowledged."""
        return all(lane.acknowledged >= added for lane, added in zip(self._lanes, mark, strict=True))

    @property
    def full(self) -> bool:
        return self.unacknowledged_bytes >= MAX_UNACKNOWLEDGED_BYTES

    @property
    def keeps_up(self) -> bool:
        """False before the start, while `room` would wait, and while Kafka is slow to acknowledge."""
        return bool(self._lanes) and not self.full and not any(lane.delayed for lane in self._lanes)

    async def start(self) -> None:
        """Connect. A start that failed may be repeated.

        Raises BrokerUnreachable, LoginRefused, TopicMissing, TopicHidden, RightMissing,
        CertificateUnreadable, and what `prefixes` does.
        """
        await reach(self._kafka)
        self._encoding.prefixes = await prefixes(self._kafka, "events")
        deadline = asyncio.get_running_loop().time() + START_SECONDS
        try:
            options = client_options(self._kafka)
            partitions = await looked_up(options, self.topic)
            producer = await connected(self._settings, options, deadline)
        except KAFKA_FAILURES as error:
            raise BrokerUnreachable(self._kafka.bootstrap_servers, failure_reason(error)) from error
        self._producer = producer
        self._lanes = [_Lane(partition) for partition in range(partitions)]
        for lane in self._lanes:
            lane.task = asyncio.create_task(self._run(lane), name=f"publish-{lane.partition}")
        self._watching = asyncio.create_task(self._growth.watch(partitions), name="publish-growth")

    def add(self, record: EventsRecord) -> None:
        """Queue a record behind all earlier ones of its replica.

        Never waits: call `room` between additions, so that what waits stays bounded.
        """
        lane = self._lanes[partition_of(record.replica, len(self._lanes))]
        value = self._encoding.value(record)
        lane.waiting.append(
            _Outgoing(
                record.replica.encode(),
                value,
                self._encoding.headers_of(record),
                mention_of(record),
            )
        )
        self.unacknowledged_bytes += len(value)
        lane.some.set()

    async def room(self) -> None:
        """Wait until less than MAX_UNACKNOWLEDGED_BYTES wait."""
        while self.full:
            self._changed.clear()
            await self._changed.wait()

    async def drain(self, seconds: float) -> int:
        """Wait until everything is acknowledged; return the records that were not in time."""
        with contextlib.suppress(asyncio.TimeoutError):
            await asyncio.wait_for(self._empty(), seconds)
        left = self.unacknowledged_records
        if left:
            self._telemetry.records_abandoned(left)
        return left

    async def stop(self, seconds: float = STOP_SECONDS) -> None:
        """End within `seconds`; what is not acknowledged by now is given up (see `drain`)."""
        await ended(self._watching, *(lane.task for lane in self._lanes), *self._retiring)
        if self._producer is not None:
            await stopped(self._producer, seconds)

    async def partitions_of(self, topic: str) -> int:
        """Return how many partitions another topic has.

        Raises TopicMissing, TopicHidden, RightMissing, BrokerUnreachable.
        """
        try:
            return await partitions_of(self._connected_producer().client, topic)
        except KAFKA_FAILURES as error:
            raise BrokerUnreachable(self._kafka.bootstrap_servers, failure_reason(error)) from error

    async def write(self, topic: str, partition: int, records: Sequence[tuple[bytes, bytes]]) -> None:
        """Send (key, value) records of another topic, and return when they are acknowledged.

        Unlike `add` it repeats nothing: raises KafkaError, OSError, asyncio.TimeoutError.
        """
        producer = self._connected_producer()
        futures = []
        batch = producer.create_batch()
        with partition_known(topic, partition):
            for key, value in records:
                if batch.append(timestamp=None, key=key, value=value, headers=[]) is None:
                    futures.append(await producer.send_batch(batch, topic, partition=partition))
                    batch = producer.create_batch()
                    batch.append(timestamp=None, key=key, value=value, headers=[])
            futures.append(await producer.send_batch(batch, topic, partition=partition))
        await asyncio.gather(*futures)

    def _connected_producer(self) -> AIOKafkaProducer:
        if self._producer is None:
            raise ConnectionError("no producer")
        return self._producer

    async def _empty(self) -> None:
        while any(lane.waiting and not lane.failed for lane in self._lanes):
            self._changed.clear()
            await self._changed.wait()

    async def _run(self, lane: _Lane) -> None:
        failures = 0
        while True:
            while not lane.waiting:
                lane.some.clear()
                await lane.some.wait()
            producer = self._producer
            try:
                if producer is None:
                    raise ConnectionError("no producer")
                count, size, first_offset = await self._send(producer, lane)
            except KAFKA_FAILURES as error:
                self._telemetry.publish_failed(lane.partition, failure_reason(error))
                # What is too large is not sent again, so nothing has to be waited for.
                failures = 1 if isinstance(error, TOO_LARGE) else failures + 1
                await asyncio.sleep(RETRY.pause(failures))
                await self._replace(producer)
                continue
            failures = 0
            self._take(lane, count, size, first_offset + count - 1 if first_offset >= 0 else -1)
            self._telemetry.published(count, size)

    async def _send(self, producer: AIOKafkaProducer, lane: _Lane) -> tuple[int, int, int]:
        """Send the first records of a lane as one batch; return their (number, bytes, first offset).

        Returns once they are acknowledged. The offset is negative where the broker gives none.
        """
        batch = producer.create_batch()
        count = size = 0
        for record in lane.waiting:
            if count and size + len(record.value) > lane.most_bytes:
                break
            added = batch.append(timestamp=None, key=record.key, value=record.value, headers=record.headers)
            if added is None:
                break
            count += 1
            size += len(record.value)
        batch.close()
        self._report_later(lane, asyncio.get_running_loop().time())
        try:
            with partition_known(self.topic, lane.partition):
                future = await producer.send_batch(batch, self.topic, partition=lane.partition)
            offset: int = (await future).offset
        except TOO_LARGE:
            self._too_large(lane, count, size)
            raise
        finally:
            lane.cancel_report()
        return count, size, offset

    def _too_large(self, lane: _Lane, count: int, size: int) -> None:
        """Send fewer records at once, or give a single one up: the broker would refuse it for ever.

        Readers see that its batches are missing.
        """
        if count > 1:
            lane.most_bytes = size // 2
            return
        self._take(lane, 1, size, -1)
        self._telemetry.records_abandoned(1)

    def _take(self, lane: _Lane, count: int, size: int, last_offset: int) -> None:
        """Take the first records off a lane: nothing of them is sent any more."""
        mentions = [lane.waiting.popleft().mention for _ in range(count)]
        lane.acknowledged += count
        self._tell_acknowledged(lane.partition, last_offset, mentions)
        self.unacknowledged_bytes -= size
        self._changed.set()

    def _report_later(self, lane: _Lane, began: float) -> None:
        # A timer costs less than waiting with a timeout.
        loop = asyncio.get_running_loop()
        lane.reporting = loop.call_later(DELAY_REPORT_SECONDS, self._report_delay, lane, began)

    def _report_delay(self, lane: _Lane, began: float) -> None:
        lane.delayed = True
        seconds = asyncio.get_running_loop().time() - began
        self._telemetry.publish_delayed(lane.partition, seconds, self.unacknowledged_bytes)
        self._report_later(lane, began)

    async def _replace(self, broken: AIOKafkaProducer | None) -> None:
        """Replace the producer `broken`, unless another lane has done so."""
        async with self._replacing:
            if self._producer is not broken:
                return
            self._producer = None
            if broken is not None:
                retiring = asyncio.create_task(retired(broken), name="publish-retiring")
                self._retiring.add(retiring)
                retiring.add_done_callback(self._retiring.discard)
            deadline = asyncio.get_running_loop().time() + START_SECONDS
            try:
                # A producer would not say why its login is refused.
                await reach(self._kafka)
                self._producer = await connected(self._settings, client_options(self._kafka), deadline)
            except (BrokerUnreachable, LoginRefused) as error:
                self._telemetry.broker_unreachable(self._kafka.bootstrap_servers, error.reason)
            except (*KAFKA_FAILURES, CertificateUnreadable) as error:
                self._telemetry.broker_unreachable(self._kafka.bootstrap_servers, failure_reason(error))


class _Lane:
    """What waits for one partition; the first records stay in `waiting` until they are acknowledged."""

    def __init__(self, partition: int) -> None:
        self.partition = partition
        self.waiting: deque[_Outgoing] = deque()
        self.acknowledged = 0
        """Records, since the start; also those that were given up."""
        self.most_bytes = sys.maxsize
        """Of records sent at once; fewer once the broker refused more as too large."""
        self.some = asyncio.Event()
        self.delayed = False
        """Whether a batch has been in flight for longer than it should."""
        self.reporting: asyncio.TimerHandle | None = None
        self.task: asyncio.Task[None] | None = None

    def cancel_report(self) -> None:
        """Report no delay: nothing is in flight any more."""
        self.delayed = False
        if self.reporting is not None:
            self.reporting.cancel()

    @property
    def failed(self) -> bool:
        """Whether nothing is sent any more."""
        return self.task is not None and self.task.done()
