"""From when on a rebuild can compute everything again: since what the log still has."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta, timezone
from types import SimpleNamespace
from typing import Any, cast

import pytest
from aiokafka import TopicPartition

from pipeline.errors import KafkaUnavailable
from pipeline.rebuild.discard import Rebuild
from schemas.settings import Settings

SECOND = datetime(2026, 1, 1, tzinfo=timezone.utc)


class Consumer:
    """Knows where partitions begin and end, and the time of the oldest record of each."""

    def __init__(self, places: Sequence[tuple[int, int]], times: Mapping[int, datetime]) -> None:
        self._places = places
        self._times = times

    async def beginning_offsets(self, asked: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
        return {place: self._places[place.partition][0] for place in asked}

    async def end_offsets(self, asked: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
        return {place: self._places[place.partition][1] for place in asked}

    def assign(self, places: Sequence[TopicPartition]) -> None: ...

    def seek(self, place: TopicPartition, offset: int) -> None: ...

    async def getmany(self, place: TopicPartition, **_: Any) -> dict[TopicPartition, list[Any]]:
        at = self._times.get(place.partition)
        if at is None:
            return {}
        milliseconds = int(at.timestamp() * 1000)
        return {place: [SimpleNamespace(offset=0, value=b"", headers=(), key=b"", timestamp=milliseconds)]}


async def exact_from(*places: tuple[int, int], **times: datetime) -> datetime | None:
    consumer = Consumer(places, {int(name[1:]): at for name, at in times.items()})
    partitions = {"kvlens.events.v1": len(places)}
    return await Rebuild(Settings(), partitions, cast(Any, consumer), cast(Any, None)).exact_from()


async def test_the_partition_that_lost_most_decides() -> None:
    assert await exact_from((0, 9), (0, 0)) is None
    later = SECOND + timedelta(hours=1)
    assert await exact_from((3, 9), (5, 9), (0, 9), (7, 7), _0=SECOND, _1=later) == later


async def test_where_retention_left_nothing_nothing_is_computed_again() -> None:
    since = await exact_from((9, 9), (0, 0))
    assert since is not None
    assert datetime.now(timezone.utc) - since < timedelta(minutes=1)


async def test_a_log_that_does_not_answer_is_not_taken_for_a_whole_one() -> None:
    with pytest.raises(KafkaUnavailable, match=r"no record of kvlens\.events\.v1/0"):
        await exact_from((3, 9))
