"""A log whose broker went away is not waited for without an end."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest
from aiokafka import TopicPartition

from pipeline.index.following import past

PLACE = TopicPartition("events", 3)


class Gone:
    """A consumer that no longer gets anything."""

    def assign(self, _: object) -> None: ...

    def seek(self, _: object, offset: int) -> None: ...

    async def beginning_offsets(self, _: object) -> dict[TopicPartition, int]:
        return {PLACE: 7}

    async def end_offsets(self, _: object) -> dict[TopicPartition, int]:
        return {PLACE: 9}

    async def offsets_for_times(self, _: object) -> dict[TopicPartition, None]:
        return {PLACE: None}

    async def getmany(self, *_: object, timeout_ms: int) -> dict[TopicPartition, list[Any]]:
        await asyncio.sleep(0.01)
        return {}


async def test_a_partition_that_stands_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(past, "SILENT_SECONDS", 0.1)
    consumer: Any = Gone()
    applying: Any = SimpleNamespace(state=SimpleNamespace(next_offset=0, let_go=lambda: None))
    with pytest.raises(asyncio.TimeoutError, match="partition 3 of events does not get past offset 7"):
        await asyncio.wait_for(past._read(consumer, PLACE, applying, 5.0), 60)
