"""Follows the events log, starting at the replica agent's checkpoints, as a consumer without a group."""

from __future__ import annotations

import asyncio
import gc
import time
from collections.abc import Mapping, Sequence
from typing import Any

import structlog
from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.errors import OffsetOutOfRangeError

from connectors.kafka.topics import topic_name
from connectors.process.collector import GC_THRESHOLD
from connectors.process.leaving import aside
from connectors.process.stopping import ended
from pipeline.applying.offered import offered
from pipeline.applying.resuming import go_on
from pipeline.errors import (
    CheckpointCorrupt,
    CheckpointDamaged,
    CheckpointFormatUnknown,
    CheckpointUnreadable,
)
from pipeline.index.following.applying import Applying, portions
from pipeline.index.following.log_consumer import log_consumer
from pipeline.index.following.partition import IndexedPartition
from pipeline.index.following.poll_times import PollTimes
from pipeline.index.following.sources import Sources
from pipeline.index.freshness import Freshness
from pipeline.index.telemetry import IndexMetrics
from pipeline.kafka.checkpoints import Loaded, load
from pipeline.kafka.identity import TopicWatch, require_same
from pipeline.kafka.rights import INDEX
from pipeline.kafka.topics import check, describe, require_rights
from pipeline.reading.events_reader import EventsReader
from schemas.settings import Settings, shard_numbers

_FETCH_WAIT_MS = 100
_AT_ONCE_RECORDS = 64
"""Unpacked in one go, while questions wait; everything fetched may come to tens of megabytes."""
_WAIT_MS = 100
_TIDY_SECONDS = 1.0

_log = structlog.get_logger(__name__)


class Follower:
    """Loads the partitions of a share into the table, and keeps them up to date."""

    def __init__(
        self, settings: Settings, sources: Sources, freshness: Freshness, metrics: IndexMetrics
    ) -> None:
        self._settings = settings
        self._sources = sources
        self._freshness = freshness
        self._metrics = metrics
        self._states: dict[int, IndexedPartition] = {}
        self._watch: TopicWatch | None = None
        self._began = time.monotonic()
        self._topic = topic_name(settings.kafka, "events")
        self._checkpoints = topic_name(settings.kafka, "checkpoints_replica")

    async def load(self) -> None:
        """Check topics and rights, then load the checkpoints into the table, in place of what was there.

        Raises KafkaUnavailable, TopicMissing, TopicHidden, RightMissing, TopicMismatch, TopicMadeAgain,
        LoginRefused, CertificateUnreadable, CheckpointUnreadable, CheckpointAhead.
        """
        self._began = time.monotonic()
        self._clear()
        described = await describe(self._settings)
        require_rights(described, self._settings.kafka, [INDEX])
        found = [topic for topic in described if topic.name in (self._topic, self._checkpoints)]
        check(found)
        self._watch = TopicWatch(self._settings.kafka, found, saved={self._topic})
        partitions = next(topic.partitions for topic in found if topic.name == self._topic)
        number, indexes = shard_numbers(self._settings.index.share)
        share = [partition for partition in range(partitions) if partition % indexes == number]
        self._freshness.follow(share)
        await self._load(share, partitions, self._watch.ids)

    def _clear(self) -> None:
        self._states.clear()
        for source in [*self._sources.by_number.values()]:
            self._sources.forget(source)
        while self._sources.holdings.sweep():
            pass

    async def run(self) -> None:
        """Follow the log from where the loaded checkpoints end, until cancelled.

        Raises KafkaUnavailable, TopicMadeAgain, TopicMismatch, CheckpointAhead, OffsetGap, RecordFatal. After
        that the table is invalid: call `load` before running again.
        """
        assert self._watch is not None, "nothing is loaded"
        tasks = [asyncio.create_task(self._watch.run()), asyncio.create_task(self._read(self._watch))]
        try:
            await asyncio.gather(*tasks)
        finally:
            await ended(*tasks)
            await self._watch.close()

    async def _read(self, watch: TopicWatch) -> None:
        # What was loaded stays, so keep the garbage collector from scanning it again and again.
        gc.collect()
        gc.freeze()
        gc.set_threshold(GC_THRESHOLD)
        share = [*self._states]
        async with log_consumer(self._settings.kafka, fetch_max_wait_ms=_FETCH_WAIT_MS) as consumer:
            places = {TopicPartition(self._topic, partition): partition for partition in share}
            consumer.assign([*places])
            for place, partition in places.items():
                consumer.seek(place, self._states[partition].next_offset)
            reader = EventsReader(self._settings)
            applying = {
                partition: Applying(reader, self._states[partition], self._metrics) for partition in share
            }
            await self._follow(consumer, places, applying, watch)

    async def _load(self, share: Sequence[int], partitions: int, ids: Mapping[str, str]) -> None:
        kafka = self._settings.kafka
        found = load(kafka, topic=self._topic, checkpoints=self._checkpoints, partitions=share)
        async for partition, loaded in found:
            # The follower writes to no topic, so only the one that it reads must be the same.
            require_same(loaded.topics, {self._topic: ids.get(self._topic, "")})
            state = IndexedPartition(partition, self._settings.worker, self._sources, partitions=partitions)
            await self._restore(state, loaded)
            self._states[partition] = state

    async def _restore(self, state: IndexedPartition, loaded: Loaded) -> None:
        try:
            await aside(lambda: state.load(loaded.latest))
        except (CheckpointCorrupt, CheckpointDamaged, CheckpointFormatUnknown) as error:
            raise CheckpointUnreadable(self._checkpoints, state.partition, str(error)) from error
        self._go_on(state, not loaded.latest, loaded.beginning, loaded.end)
        _log.info(
            "checkpoint loaded",
            partition=state.partition,
            sources=len(state.sources),
            next_offset=state.next_offset,
            behind=loaded.end - state.next_offset,
        )

    def _go_on(self, state: IndexedPartition, fresh: bool, beginning: int, end: int) -> None:
        lost = self._metrics.lost.inc
        go_on(state, self._topic, state.partition, fresh=fresh, beginning=beginning, end=end, lost=lost)

    async def _fetched(
        self, consumer: AIOKafkaConsumer, places: Mapping[TopicPartition, int], watch: TopicWatch
    ) -> Mapping[TopicPartition, Sequence[Any]]:
        """Return fetched records; where retention removed unread ones, continue at the oldest one left."""
        try:
            records: Mapping[TopicPartition, Sequence[Any]] = await consumer.getmany(
                timeout_ms=_WAIT_MS, max_records=_AT_ONCE_RECORDS
            )
            return records
        except OffsetOutOfRangeError as error:
            await watch.look()
            out_of_range = [place for place in error.args[0] if place in places]
            begins = await consumer.beginning_offsets(out_of_range)
            ends = await consumer.end_offsets(out_of_range)
            for place in out_of_range:
                state = self._states[places[place]]
                self._go_on(state, False, begins[place], ends[place])
                consumer.seek(place, state.next_offset)
            return {}

    async def _follow(
        self,
        consumer: AIOKafkaConsumer,
        places: dict[TopicPartition, int],
        applying: Mapping[int, Applying],
        watch: TopicWatch,
    ) -> None:
        tidied, ready = 0.0, False
        polled = PollTimes()
        while True:
            fetched = await self._fetched(consumer, places, watch)
            for place, records in fetched.items():
                for portion in portions(offered(records)):
                    applying[places[place]].apply(portion)
                    await asyncio.sleep(0)
            for place, partition in places.items():
                looked, end = consumer.last_poll_timestamp(place), consumer.highwater(place)
                if looked is not None and end is not None:
                    self._freshness.looked(
                        partition,
                        next_offset=self._states[partition].next_offset,
                        end=end,
                        at=polled.of(partition, looked),
                    )
            if self._freshness.ready and not ready:
                ready, seconds = True, time.monotonic() - self._began
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
            await asyncio.sleep(0)  # let questions run
        self._metrics.sources.set(len(self._sources.by_number))
        self._metrics.blocks.set(self._sources.holdings.blocks)
        self._metrics.table_bytes.set(self._sources.holdings.bytes_allocated)
