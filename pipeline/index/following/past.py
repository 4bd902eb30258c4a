"""Which source held what at a moment of the past: the log, read from its oldest record up to that moment.

Checkpoints are of no use here: compaction leaves only the newest one, which is later than that moment.
"""

from __future__ import annotations

from dataclasses import dataclass

from aiokafka import AIOKafkaConsumer, TopicPartition

from connectors.kafka.topics import topic_name
from pipeline.applying.offered import offered
from pipeline.index.following.applying import Applying, portions
from pipeline.index.following.log_consumer import log_consumer
from pipeline.index.following.partition import IndexedPartition
from pipeline.index.following.sources import Sources
from pipeline.index.index import Index
from pipeline.index.telemetry import IndexMetrics
from pipeline.kafka.stretch import stretch
from pipeline.kafka.topics import describe
from pipeline.reading.events_reader import EventsReader
from pipeline.residency.granularity.two_sizes import GranularPool
from schemas.settings import Settings, shard_numbers

ALL = "0/1"
"""The share that is the whole log."""

Key = tuple[str, int, str]
"""Replica, rank and medium."""


@dataclass(frozen=True)
class Past:
    """What all sources held at a moment."""

    index: Index
    sources: Sources
    records: int
    """Number of records applied."""
    whole_from: float | None
    """If retention has removed the beginning of the log: the time back to which every partition reaches, in
    seconds since the epoch; it may be later than the moment. What was stored before that is unknown."""

    def held(self) -> dict[Key, set[tuple[int, int]] | None]:
        """Return the (group, hash) pairs of each key; None where an engine announces two granularities."""
        found: dict[Key, set[tuple[int, int]] | None] = {}
        for source in self.sources.by_number.values():
            residency = source.residency
            if residency is None:
                continue
            for pool in residency.pools:
                key = (residency.head.replica, residency.head.dp_rank, pool.head.medium)
                known = found.setdefault(key, set())
                if isinstance(pool, GranularPool):
                    found[key] = None
                elif known is not None:
                    group = pool.head.group_idx
                    known |= {(group, block) for block in pool.copies.live()["hash"].tolist()}
        return found


async def past(settings: Settings, at: float, *, sources: Sources | None = None, share: str = ALL) -> Past:
    """Return the state after all records that were written to the log up to `at`.

    `sources`: an empty one to fill. `share`: which partitions to read, in the form of `index.share`. Raises
    KafkaUnavailable, TopicMissing, TopicHidden, RightMissing, OffsetGap, RecordFatal.
    """
    topic = topic_name(settings.kafka, "events")
    there = {found.name: found for found in await describe(settings)}
    there[topic].require("Read")
    partitions = there[topic].partitions
    number, indexes = shard_numbers(share)
    sources = Sources() if sources is None else sources
    reader, metrics = EventsReader(settings), IndexMetrics()
    records, begins = 0, list[float]()
    async with log_consumer(settings.kafka) as consumer:
        for partition in range(number, partitions, indexes):
            state = IndexedPartition(partition, settings.worker, sources, partitions=partitions)
            place = TopicPartition(topic, partition)
            begin, oldest = await _read(consumer, place, Applying(reader, state, metrics), at)
            records += state.next_offset - begin
            if begin:
                begins.append(oldest)
    return Past(Index(sources), sources, records, max(begins, default=None))


async def _read(
    consumer: AIOKafkaConsumer, place: TopicPartition, applying: Applying, at: float
) -> tuple[int, float]:
    """Apply a partition up to a moment; return its first offset and when that record was written.

    Of a partition without records the second is the moment. Raises asyncio.TimeoutError where it stands.
    """
    begin = (await consumer.beginning_offsets([place]))[place]
    end = (await consumer.end_offsets([place]))[place]
    later = (await consumer.offsets_for_times({place: int(at * 1000) + 1}))[place]
    if later is not None:
        end = min(end, later.offset)
    state = applying.state
    state.next_offset = begin
    oldest: float | None = None
    async for records in stretch(consumer, place, begin, end):
        came = offered(records)
        oldest = came[0].written_at if oldest is None else oldest
        for portion in portions(came):
            applying.apply(portion)
        state.let_go()
    if oldest is None:
        oldest = at if later is None else later.timestamp / 1000
    return begin, oldest
