"""A log whose broker went away, or that lost what was to be read, is not waited for without an end."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from typing import Any

import pytest
from aiokafka import TopicPartition

from pipeline.index.following import past
from pipeline.kafka import checkpoints, stretch
from pipeline.rebuild import recomputing

PLACE = TopicPartition("events", 3)


class Gone:
    """A consumer that no longer gets anything."""

    def assign(self, _: object) -> None: ...

    def seek(self, _: object, offset: int) -> None:
        self.offset = offset

    async def beginning_offsets(self, _: object) -> dict[TopicPartition, int]:
        return {PLACE: 7}

    async def end_offsets(self, _: object) -> dict[TopicPartition, int]:
        return {PLACE: 9}

    async def offsets_for_times(self, _: object) -> dict[TopicPartition, None]:
        return {PLACE: None}

    async def getmany(self, *_: object, timeout_ms: int) -> dict[TopicPartition, list[Any]]:
        await asyncio.sleep(0.01)
        return {}

    async def position(self, _: object) -> int:
        return self.offset


class Markers(Gone):
    """A consumer that gets the first of some offsets; the others are of no records."""

    async def getmany(self, *_: object, timeout_ms: int) -> dict[TopicPartition, list[Any]]:
        self.offset += 1
        return {PLACE: [SimpleNamespace(offset=7)]} if self.offset == 8 else {}


def at(consumer: Any) -> Awaitable[object]:
    applying: Any = SimpleNamespace(state=SimpleNamespace(next_offset=0, let_go=lambda: None))
    return past._read(consumer, PLACE, applying, 5.0)


@pytest.mark.parametrize(
    "read",
    [
        at,
        lambda consumer: checkpoints._read(consumer, PLACE, 7, 9),
        lambda consumer: recomputing._records(consumer, {PLACE: (0, 9)}),
    ],
    ids=["past", "checkpoints", "recomputing"],
)
async def test_a_partition_that_stands_is_given_up(
    monkeypatch: pytest.MonkeyPatch, read: Callable[[Any], Awaitable[object]]
) -> None:
    monkeypatch.setattr(stretch, "SILENT_SECONDS", 0.1)
    with pytest.raises(asyncio.TimeoutError, match="partition 3 of events does not get past offset 7"):
        await asyncio.wait_for(read(Gone()), 60)


async def test_offsets_without_records_are_passed() -> None:
    consumer: Any = Markers()
    assert await recomputing._records(consumer, {PLACE: (0, 9)}) == 1
