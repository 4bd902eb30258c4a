"""Follows workers that compute everything again: how far they are, and when they are done."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient

from connectors.kafka.topics import topic_name
from pipeline.kafka.membership import group_name
from pipeline.kafka.stretch import stretch
from pipeline.rebuild.discard import Discarded, Extent, started_clients
from schemas.settings import Settings

_EVERY_SECONDS = 1.0
_FEW = 1_000
"""Fewer offsets than this are looked at one by one, to see which are markers of transactions."""


@dataclass(frozen=True)
class Standing:
    """How far a recomputation is."""

    seconds: float
    """Since it was first looked at."""
    done: int
    """Event records that the replica agent has applied and saved."""
    total: int
    """Event records there are to apply."""
    unfollowed: int
    """Offsets of the residency topic that the fleet agent has not reached."""

    def __str__(self) -> str:
        if self.done < self.total:
            share = f"{self.done:,} of {self.total:,} event records ({100 * self.done / self.total:.0f} %)"
            if not self.done:
                return f"{share}, none applied yet"
            rate = self.done / max(self.seconds, _EVERY_SECONDS)
            return f"{share}, {rate:,.0f}/s, {_as_time((self.total - self.done) / rate)} left"
        behind = f", the fleet agent has {self.unfollowed:,} records to go" if self.unfollowed else ""
        return f"all {self.total:,} event records{behind}"


def _as_time(seconds: float) -> str:
    minutes = round(seconds / 60)
    if minutes < 2:
        return f"{seconds:.0f} s"
    return f"{minutes} min" if minutes < 120 else f"{minutes // 60} h {minutes % 60} min"


async def follow(settings: Settings, begun: Discarded, say: Callable[[Standing], None]) -> None:
    """Return when both agents have saved every event there was at the beginning; `say` is called each second.

    Raises KafkaUnavailable.
    """
    residency = topic_name(settings.kafka, "residency")
    shards = [TopicPartition(residency, number) for number in range(begun.shards)]
    began = time.monotonic()
    async with started_clients(settings.kafka, "read_committed") as (admin, consumer):
        while True:
            replica = await _committed(admin, group_name(settings.kafka, "replica"), begun.events.topic)
            done, total = _done(begun.events, replica)
            # Asked for after the replica agent's offsets, so that no change it announced is left out.
            ends = await consumer.end_offsets(shards)
            fleet = await _committed(admin, group_name(settings.kafka, "fleet"), residency)
            left = await _left(consumer, fleet, ends, one_by_one=done >= total)
            say(Standing(time.monotonic() - began, done, total, left))
            if done >= total and not left:
                return
            await asyncio.sleep(_EVERY_SECONDS)


def _done(events: Extent, committed: Mapping[int, int]) -> tuple[int, int]:
    """Return how many of the records are committed, and how many there are, both without later ones."""
    # Retention may have removed records between setting the offsets and looking at the log.
    done = sum(
        max(0, min(committed.get(number, begin), events.ends[number]) - begin)
        for number, begin in events.begins.items()
    )
    return done, sum(events.ends[number] - begin for number, begin in events.begins.items())


async def _left(
    consumer: AIOKafkaConsumer,
    committed: Mapping[int, int],
    ends: Mapping[TopicPartition, int],
    *,
    one_by_one: bool,
) -> int:
    """Return how many offsets are not committed; if those are few, and `one_by_one`, how many records."""
    ranges = {
        partition: (committed.get(partition.partition, 0), end)
        for partition, end in ends.items()
        if committed.get(partition.partition, 0) < end
    }
    left = sum(end - begin for begin, end in ranges.values())
    return await _records(consumer, ranges) if one_by_one and left < _FEW else left


async def _committed(admin: AIOKafkaAdminClient, group: str, topic: str) -> dict[int, int]:
    offsets = await admin.list_consumer_group_offsets(group)
    return {
        partition.partition: found.offset
        for partition, found in offsets.items()
        if partition.topic == topic and found.offset >= 0
    }


async def _records(consumer: AIOKafkaConsumer, ranges: Mapping[TopicPartition, tuple[int, int]]) -> int:
    """Return how many records each partition has from its first offset to before its second, in all."""
    count = 0
    for partition, (begin, end) in ranges.items():
        oldest = await consumer.beginning_offsets([partition])
        async for found in stretch(consumer, partition, max(begin, oldest[partition]), end):
            count += len(found)
    return count
