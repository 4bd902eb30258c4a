"""An open transaction hides what others committed behind it: verify waits for it, but not for ever."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping

from pipeline.verify.open_transactions import held_back


class Topic:
    """Two partitions: 0 is readable to its end, 1 is held back until a moment, while more is written."""

    def __init__(self, ended_at: float) -> None:
        self.now = 0.0
        self.asked = 0
        self._ended_at = ended_at

    async def written(self) -> Mapping[int, int]:
        self.asked += 1
        return {0: 7, 1: 12 + int(self.now)}

    async def readable(self) -> Mapping[int, int]:
        return {0: 7, 1: 4 if self.now < self._ended_at else 12}

    async def sleep(self, seconds: float) -> None:
        self.now += seconds

    def held_back(self, patience: float) -> list[int]:
        clock: Callable[[], float] = lambda: self.now  # noqa: E731
        return asyncio.run(
            held_back(self.written, self.readable, patience=patience, clock=clock, sleep=self.sleep)
        )


def test_a_transaction_that_ends_in_time_is_waited_for() -> None:
    topic = Topic(ended_at=11.0)
    assert topic.held_back(30.0) == []
    assert 11.0 <= topic.now < 12.0
    assert topic.asked == 1  # what is written meanwhile does not matter


def test_one_that_stays_open_is_named_when_patience_ends() -> None:
    topic = Topic(ended_at=1000.0)
    assert topic.held_back(30.0) == [1]
    assert 30.0 <= topic.now < 31.0
    assert topic.held_back(0.0) == [1]
