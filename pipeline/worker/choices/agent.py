"""Writes routers' choices into their table, and as figures: read, write, and only then commit the offsets.

A row's key and version follow from its record, so whatever is read a second time, after a kill or because
partitions changed hands, is the same row once more.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

import structlog
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, ConsumerRebalanceListener, TopicPartition
from aiokafka.errors import CommitFailedError
from aiokafka.structs import OffsetAndMetadata

from connectors.kafka.consumer import started_consumer
from connectors.kafka.errors import KAFKA_FAILURES, failure_reason, partition_known
from connectors.kafka.private import member_id
from connectors.kafka.security import client_options
from connectors.kafka.topics import topic_name
from connectors.process.limited_log import LogLimiter
from pipeline.applying.set_aside import DETAIL_CHARACTERS
from pipeline.errors import KafkaUnavailable
from pipeline.kafka.acceptance import accepted_choice, require_time_of_the_log
from pipeline.kafka.committed import committed_before
from pipeline.kafka.membership import group_name
from pipeline.kafka.refusal import RecordRefused
from pipeline.kafka.rights import CHOICES
from pipeline.worker.checkpoint.batches import batches
from pipeline.worker.choices.rows import row_of
from pipeline.worker.consumer.app import HEARTBEAT_SECONDS, REBALANCE_SECONDS, SESSION_SECONDS
from pipeline.worker.sink.sink import Sink
from pipeline.worker.telemetry import WorkerMetrics
from schemas.fleet_rows import ChoiceRow
from schemas.rows import Row
from schemas.settings import Settings

_WAIT_MS = 1000
_RECORDS = 20_000
"""Most records of one insert."""
_POLL_MS = 86_400_000
"""Waiting for ClickHouse is no reason to leave the group."""
_AGAIN_SECONDS = 2.0
"""Pause before another consumer is tried."""

_log = structlog.get_logger(__name__)

Fetched = Mapping[TopicPartition, Sequence[Any]]
"""Records as aiokafka gives them."""


class ChoicesAgent(ConsumerRebalanceListener):  # type: ignore[misc]
    """A member of the group that writes choices."""

    def __init__(
        self,
        settings: Settings,
        sink: Sink,
        metrics: WorkerMetrics,
        *,
        topic_id: str,
        every: float,
        joined: Callable[[str, str], None],
    ) -> None:
        """`topic_id`: as Kafka reports it, empty if it does not. `every`: seconds between two inserts.
        `joined` gets group and member id at each assignment."""
        self._settings = settings
        self._sink = sink
        self._metrics = metrics
        self._topic_id = topic_id
        self._every = every
        self._joined = joined
        self._topic = topic_name(settings.kafka, CHOICES)
        self._group = group_name(settings.kafka, CHOICES)
        self._limiter = LogLimiter()
        self._consumer: AIOKafkaConsumer | None = None
        self._taking_over = asyncio.Lock()
        self._failed: Exception | None = None
        """Why an assignment could not be taken over."""

    async def run(self) -> None:
        """Write until cancelled. Raises CertificateUnreadable and RowsRefused.

        When Kafka goes away another consumer starts over: all that is kept here follows from the log.
        """
        while True:
            try:
                await self._follow()
            except (*KAFKA_FAILURES, KafkaUnavailable) as error:
                if (suppressed := self._limiter.admit("Kafka away")) is not None:
                    _log.warning("choices wait for Kafka", reason=failure_reason(error), **suppressed)
            await asyncio.sleep(_AGAIN_SECONDS)

    async def _follow(self) -> None:
        async with started_consumer(
            group_id=self._group,
            enable_auto_commit=False,
            auto_offset_reset="earliest",
            session_timeout_ms=int(SESSION_SECONDS * 1000),
            heartbeat_interval_ms=int(HEARTBEAT_SECONDS * 1000),
            rebalance_timeout_ms=int(REBALANCE_SECONDS * 1000),
            max_poll_interval_ms=_POLL_MS,
            **client_options(self._settings.kafka),
        ) as consumer:
            self._consumer, self._failed = consumer, None
            consumer.subscribe([self._topic], listener=self)
            try:
                async with self._started_producer() as producer:
                    while True:
                        began = time.monotonic()
                        fetched = await consumer.getmany(timeout_ms=_WAIT_MS, max_records=_RECORDS)
                        # Fetching does not wait for the listener, which has to see what was committed before.
                        async with self._taking_over:
                            if self._failed is not None:
                                raise self._failed
                        if fetched:
                            await self._write(fetched, producer)
                            await self._commit(consumer, fetched)
                        await asyncio.sleep(max(0.0, began + self._every - time.monotonic()))
            finally:
                # A consumer that stops leaves the group without calling its listener.
                await self.on_partitions_revoked(consumer.assignment())

    @asynccontextmanager
    async def _started_producer(self) -> AsyncIterator[AIOKafkaProducer | None]:
        """Yield the producer of figures, if any: no transaction, as offsets follow in another request."""
        kafka = self._settings.kafka
        if not kafka.figures:
            yield None
            return
        producer = AIOKafkaProducer(acks="all", enable_idempotence=True, **client_options(kafka))
        try:
            await producer.start()
            yield producer
        finally:
            await producer.stop()

    async def on_partitions_revoked(self, revoked: Iterable[TopicPartition]) -> None:
        """Remove the gauges of partitions that another worker may own now."""
        for place in revoked:
            self._metrics.given_up(CHOICES, place.partition)

    async def on_partitions_assigned(self, assigned: Iterable[TopicPartition]) -> None:
        """Take partitions over. If that fails, another consumer starts over: aiokafka would go on."""
        assert self._consumer is not None
        async with self._taking_over:
            try:
                await self._take_over(self._consumer, [*assigned])
            except Exception as error:
                self._failed = error

    async def _take_over(self, consumer: AIOKafkaConsumer, places: Sequence[TopicPartition]) -> None:
        """Report what retention removed before it was read; aiokafka begins at the oldest record then.

        Begin there, too, where the group's offset is of a topic that was deleted since.
        """
        numbers = sorted(place.partition for place in places)
        if places:
            begins = await consumer.beginning_offsets(places)
            committed = await committed_before(self._settings.kafka, self._group, self._topic, numbers)
            for place in places:
                last = committed[place.partition]
                if last.note and self._topic_id and last.note != self._topic_id:
                    consumer.seek(place, begins[place])
                    _log.warning(
                        "the topic of choices was made again since its last records were read",
                        topic=place.topic,
                        partition=place.partition,
                    )
                    continue
                missing = begins[place] - (last.offset or begins[place])
                if missing > 0:
                    self._metrics.lost.labels(CHOICES).inc(missing)
                    _log.error(
                        "retention removed choices before they were read",
                        topic=place.topic,
                        partition=place.partition,
                        records=missing,
                    )
        self._joined(self._group, member_id(consumer))
        _log.info("choices assigned", agent=CHOICES, partitions=numbers)

    async def _write(self, fetched: Fetched, producer: AIOKafkaProducer | None) -> None:
        rows: list[Row] = [row for place, records in fetched.items() for row in self._rows(place, records)]
        if not rows:
            return
        await self._sink.write(rows)
        if producer is not None:
            records = await self._sink.records(rows)
            sent = []
            for (topic, partition), batch in batches(records, self._settings.kafka, transactional=False):
                with partition_known(topic, partition):
                    sent.append(await producer.send_batch(batch, topic, partition=partition))
            await asyncio.gather(*sent)

    def _rows(self, place: TopicPartition, records: Sequence[Any]) -> Iterable[ChoiceRow]:
        for record in records:
            try:
                choice = accepted_choice(record.value, record.headers, record.key)
                require_time_of_the_log(choice, record.timestamp / 1000)
            except RecordRefused as refused:
                self._metrics.set_aside.labels(CHOICES, refused.reason).inc()
                if (suppressed := self._limiter.admit(refused.reason)) is not None:
                    _log.error(
                        "choice left out: it cannot be read",
                        topic=place.topic,
                        partition=place.partition,
                        offset=record.offset,
                        reason=refused.reason,
                        detail=refused.detail[:DETAIL_CHARACTERS],
                        **suppressed,
                    )
            else:
                yield row_of(choice, record.offset)

    async def _commit(self, consumer: AIOKafkaConsumer, fetched: Fetched) -> None:
        owned = consumer.assignment()
        done = {
            place: OffsetAndMetadata(records[-1].offset + 1, self._topic_id)
            for place, records in fetched.items()
            if place in owned
        }
        try:
            if done:
                await consumer.commit(done)
        except CommitFailedError:
            _log.info("choices changed hands: whoever has them now writes the same rows", topic=self._topic)
            return
        for place, committed in done.items():
            labels = (CHOICES, str(place.partition))
            self._metrics.records.labels(*labels).inc(len(fetched[place]))
            if place not in consumer.assignment():  # given up meanwhile, and its gauges with it
                continue
            self._metrics.next_offset.labels(*labels).set(committed.offset)
            if (end := consumer.highwater(place)) is not None:
                self._metrics.lag.labels(*labels).set(max(0, end - committed.offset))
