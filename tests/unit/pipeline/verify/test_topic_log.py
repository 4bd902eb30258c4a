"""What is read of a partition whose oldest records retention removes meanwhile."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from aiokafka import TopicPartition

from pipeline.verify.topic_log import BeginningMoved, TopicLog
from schemas.settings import Kafka


class Consumer:
    """A partition that holds records at these offsets and begins at one; reading goes on there by itself."""

    def __init__(self, begin: int, *offsets: int) -> None:
        self._begin = begin
        self._offsets = offsets
        self._position = 0

    def assign(self, _: list[TopicPartition]) -> None:
        """Read the only partition."""

    def seek(self, _: TopicPartition, offset: int) -> None:
        self._position = max(offset, self._begin)

    async def position(self, _: TopicPartition) -> int:
        return self._position

    async def beginning_offsets(self, asked: list[TopicPartition]) -> dict[TopicPartition, int]:
        return dict.fromkeys(asked, self._begin)

    async def getmany(self, partition: TopicPartition, **_: Any) -> dict[TopicPartition, list[Any]]:
        offsets = [offset for offset in self._offsets if offset >= self._position]
        self._position = 10
        return {
            partition: [
                SimpleNamespace(offset=offset, value=b"", timestamp=0, headers=(), key=None)
                for offset in offsets
            ]
        }


async def read(consumer: Any) -> list[int]:
    """Return the offsets read from 2 up to 10."""
    log = TopicLog(Kafka(), "t", consumer, consumer, 1, lambda value, _headers, _key: value)
    return [offset async for offset, _ in log.records(0, 2, 10)]


@pytest.mark.parametrize("begin", [0, 2])
async def test_offsets_without_a_record_are_no_loss(begin: int) -> None:
    assert await read(Consumer(begin, 3, 5)) == [3, 5]
    assert await read(Consumer(begin)) == []


@pytest.mark.parametrize(("begin", "left"), [(4, (5, 7)), (11, ()), (11, (12,))])
async def test_what_was_removed_since_is_told(begin: int, left: tuple[int, ...]) -> None:
    with pytest.raises(BeginningMoved, match="retention removed records of t, partition 0"):
        await read(Consumer(begin, *left))


@pytest.mark.parametrize("left", [(8,), ()])
async def test_what_is_removed_while_the_partition_is_read_is_told(left: tuple[int, ...]) -> None:
    class Shrinking(Consumer):
        async def getmany(self, partition: TopicPartition, **_: Any) -> dict[TopicPartition, list[Any]]:
            found = await super().getmany(partition)
            if self._begin < 7:
                self._begin, self._position, self._offsets = 7, 5, left
            return found

    with pytest.raises(BeginningMoved):
        await read(Shrinking(0, 2, 3, 4))
