"""What a copy says of records that retention takes while it runs."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any, cast

from aiokafka import TopicPartition

from pipeline.kafka.copying import _Copy

OLD, NEW = TopicPartition("old", 0), TopicPartition("new", 0)


class Log:
    """A partition of ten records of which half go away before the first is read, and all clients of it."""

    def __init__(self) -> None:
        self.copied: list[bytes] = []
        self._position = 0

    async def beginning_offsets(self, places: list[TopicPartition]) -> Mapping[TopicPartition, int]:
        return dict.fromkeys(places, 0)

    async def end_offsets(self, places: list[TopicPartition]) -> Mapping[TopicPartition, int]:
        return {place: 10 if place == OLD else 0 for place in places}

    def assign(self, places: list[TopicPartition]) -> None:
        assert places == [OLD]

    def seek(self, place: TopicPartition, offset: int) -> None:
        self._position = max(offset, 5)

    async def position(self, place: TopicPartition) -> int:
        return self._position

    async def getmany(self, place: TopicPartition, timeout_ms: int) -> Mapping[TopicPartition, list[Any]]:
        offset, self._position = self._position, self._position + 1
        record = SimpleNamespace(
            topic="old", partition=0, offset=offset, key=b"r", value=b"x", headers=(), timestamp=offset * 1000
        )
        return {place: [record]}

    async def committed(self, place: TopicPartition) -> None:
        return None

    async def commit(self, offsets: Mapping[TopicPartition, int]) -> None:
        pass

    async def send(self, topic: str, value: bytes, **_: Any) -> asyncio.Future[None]:
        self.copied.append(value)
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        done.set_result(None)
        return done


async def test_records_that_go_away_meanwhile_count_as_lost() -> None:
    log = cast(Any, Log())
    done = await _Copy(log, log, log, [OLD], [NEW]).run(lambda line: None)
    assert (len(log.copied), done.copied, done.lost) == (5, 5, 5)
