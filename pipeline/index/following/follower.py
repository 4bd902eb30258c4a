"""Follows the events log from the replica agent's checkpoints on, as a reader that belongs to no group."""

from __future__ import annotations

import asyncio
import gc
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import structlog
from aiokafka import AIOKafkaConsumer, TopicPartition

from connectors.kafka.consumer import started_consumer
from connectors.kafka.errors import KAFKA_FAILURES, failure_reason
from connectors.kafka.security import client_options
from connectors.kafka.topics import topic_name
from connectors.process.collector import GC_THRESHOLD
from connectors.process.leaving import aside
from pipeline.errors import (
    CheckpointCorrupt,
    CheckpointDamaged,
    CheckpointFormatUnknown,
    CheckpointUnreadable,
    KafkaUnavailable,
)
from pipeline.index.following.partition import IndexedPartition
from pipeline.index.following.sources import Sources
from pipeline.index.freshness import Freshness
from pipeline.index.offered import Applying, from_log, portions
from pipeline.index.telemetry import IndexMetrics
from pipeline.kafka.rights import INDEX
from pipeline.kafka.topics import describe, require_rights
from pipeline.worker.checkpoint.log import Loaded, load
from pipeline.worker.roles import replica_agent
from schemas.settings import Settings, shard_numbers

_FETCH_BYTES = 4 << 20
_FETCH_WAIT_MS = 100
_AT_ONCE_RECORDS = 64
"""Unpacked in one go, while questions wait; all that was fetched may be some ten megabytes."""
_WAIT_MS = 100
_TIDY_SECONDS = 1.0

_log = structlog.get_logger(__name__)


class Follower:
    """Brings the partitions of a share into the table, and keeps them up to date."""

    def __init__(
        self, settings: Settings, sources: Sources, freshness: Freshness, metrics: IndexMetrics
    ) -> None:
        self._settings = settings
        self._sources = sources
        self._freshness = freshness
        self._metrics = metrics
        self._states: dict[int, IndexedPartition] = {}
        self._topic = topic_name(settings.kafka, "events")
        self._checkpoints = topic_name(settings.kafka, "checkpoints_replica")

    async def reach(self) -> None:
        """Return when there is something to follow, and the right to.

        Raises KafkaUnavailable, TopicMissing, TopicHidden, RightMissing, LoginRefused, CertificateUnreadable.
        """
        require_rights(await describe(self._settings), self._settings.kafka, [INDEX])

    async def run(self) -> None:
        """Load the checkpoints and follow the log until cancelled.

        Raises KafkaUnavailable, TopicMissing, CheckpointUnreadable, OffsetGap, RecordFatal. What is in the
        table is void then: whoever starts again begins with the checkpoints.
        """
        began = time.monotonic()
        async with self._consumer() as consumer:
            there = {found.name: found.partitions for found in await describe(self._settings)}
            partitions = there[self._topic]
            number, indexes = shard_numbers(self._settings.index.share)
            share = [partition for partition in range(partitions) if partition % indexes == number]
            self._freshness.follow(share)
            await self._load(share, partitions)
            # What was loaded stays: the collector need not look at it again and again.
            gc.collect()
            gc.freeze()
            gc.set_threshold(GC_THRESHOLD)
            places = {TopicPartition(self._topic, partition): partition for partition in share}
            consumer.assign([*places])
            for place, partition in places.items():
                consumer.seek(place, self._states[partition].next_offset)
            applying = Applying(replica_agent(self._settings, shards=1, partitions=partitions), self._metrics)
            await self._follow(consumer, places, applying, began)

    @asynccontextmanager
    async def _consumer(self) -> AsyncIterator[AIOKafkaConsumer]:
        kafka = self._settings.kafka
        try:
            async with started_consumer(
                enable_auto_commit=False,
                auto_offset_reset="none",
                fetch_max_wait_ms=_FETCH_WAIT_MS,
                max_partition_fetch_bytes=_FETCH_BYTES,
                **client_options(kafka),
            ) as consumer:
                yield consumer
        except KAFKA_FAILURES as error:
            raise KafkaUnavailable(kafka.bootstrap_servers, failure_reason(error)) from error

    async def _load(self, share: Sequence[int], partitions: int) -> None:
        kafka = self._settings.kafka
        found = load(kafka, topic=self._topic, checkpoints=self._checkpoints, partitions=share)
        async for partition, loaded in found:
            state = IndexedPartition(partition, self._settings.worker, self._sources, partitions=partitions)
            await self._take_over(state, loaded)
            self._states[partition] = state

    async def _take_over(self, state: IndexedPartition, loaded: Loaded) -> None:
        try:
            await aside(lambda: state.load(loaded.latest))
        except (CheckpointCorrupt, CheckpointDamaged, CheckpointFormatUnknown) as error:
            raise CheckpointUnreadable(self._checkpoints, state.partition, str(error)) from error
        missing = loaded.beginning - state.next_offset
        if missing > 0:
            if state.next_offset:
                self._metrics.lost.inc(missing)
                _log.error(
                    "records of the log are gone that no checkpoint has",
                    topic=self._topic,
                    partition=state.partition,
                    first=state.next_offset,
                    last=loaded.beginning - 1,
                )
            state.next_offset = loaded.beginning
        _log.info(
            "checkpoint loaded",
            partition=state.partition,
            sources=len(state.sources),
            next_offset=state.next_offset,
            behind=loaded.end - state.next_offset,
        )

    async def _follow(
        self,
        consumer: AIOKafkaConsumer,
        places: dict[TopicPartition, int],
        applying: Applying,
        began: float,
    ) -> None:
        tidied, ready = 0.0, False
        while True:
            fetched = await consumer.getmany(timeout_ms=_WAIT_MS, max_records=_AT_ONCE_RECORDS)
            for place, records in fetched.items():
                state = self._states[places[place]]
                for portion in portions([from_log(record) for record in records]):
                    applying.apply(state, portion)
                    await asyncio.sleep(0)
            for place, partition in places.items():
                looked, end = consumer.last_poll_timestamp(place), consumer.highwater(place)
                if looked is not None and end is not None:
                    self._freshness.looked(
                        partition,
                        next_offset=self._states[partition].next_offset,
                        end=end,
                        at=time.monotonic() - max(0.0, time.time() - looked / 1000),
                    )
            if self._freshness.ready and not ready:
                ready, seconds = True, time.monotonic() - began
                self._metrics.ready_seconds.set(seconds)
                _log.info("caught up with the log", seconds=round(seconds, 1))
            self._sources.holdings.sweep()
            if time.monotonic() - tidied >= _TIDY_SECONDS:
                tidied = time.monotonic()
                await self._tidy()

    async def _tidy(self) -> None:
        for state in self._states.values():
            state.let_go()
            state.take_forgotten()
            await asyncio.sleep(0)  # questions have a turn
        self._metrics.sources.set(len(self._sources.by_number))
        self._metrics.blocks.set(self._sources.holdings.blocks)
        self._metrics.table_bytes.set(self._sources.holdings.bytes_allocated)
