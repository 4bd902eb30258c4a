"""How far a consumer group is in a topic, again and again: its rate, the topic's, and what lies between."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np
from aiokafka import AIOKafkaConsumer, TopicPartition

from fleet_load.replicas import PARTITIONS

EVERY_SECONDS = 0.25
_FEW_ROUNDS = 3
_LAST = 8
"""Samples that the lag at the end is the mean of: a group moves once a checkpoint."""


@dataclass
class Standing:
    """Samples of (time, offset of the group, end of the topic), offsets summed over partitions."""

    samples: list[tuple[float, int, int]] = field(default_factory=list)

    @property
    def rate(self) -> float:
        """Offsets a second that the group moves over its `span`."""
        return self._rate(1)

    @property
    def span(self) -> tuple[float, float]:
        """The ends of the first and of the last round of checkpoints: the group moves once a round, so
        between other times, a few rounds long, it seems to do more or less than it does."""
        rounds = self._rounds()
        over = self.samples if len(rounds) < _FEW_ROUNDS else rounds
        return over[0][0], over[-1][0]

    @property
    def coming(self) -> float:
        """Offsets a second that the topic grows."""
        return self._slope(2)

    @property
    def share(self) -> float:
        """The group's rate, of the topic's over the same span: that may grow by jumps, too."""
        return self.rate / self._rate(2)

    @property
    def lag_seconds(self) -> float:
        """What the group has not committed at the end, as time of the topic."""
        waiting = [end - done for _, done, end in self.samples[-_LAST:]]
        return sum(waiting) / len(waiting) / self.coming

    def _rate(self, column: int) -> float:
        rounds = self._rounds()
        if len(rounds) < _FEW_ROUNDS:
            return self._slope(column)
        first, last = rounds[0], rounds[-1]
        return (last[column] - first[column]) / (last[0] - first[0])

    def _rounds(self) -> list[tuple[float, int, int]]:
        """Return the samples at the end of each round, whose partitions commit one after the other."""
        moves = [now for before, now in pairwise(self.samples) if now[1] != before[1]]
        still = [after[0] - move[0] for move, after in pairwise([*moves, self.samples[-1]])]
        return [move for move, rest in zip(moves, still, strict=True) if rest > max(still) / 2]

    def _slope(self, column: int) -> float:
        taken = np.array(self.samples)
        slope: float = np.polyfit(taken[:, 0] - taken[0, 0], taken[:, column], 1)[0]
        return slope


class Group:
    """A group on its topic."""

    def __init__(self, bootstrap: str, topic: str, name: str) -> None:
        self._partitions = [TopicPartition(topic, number) for number in range(PARTITIONS)]
        self._client: Any = AIOKafkaConsumer(
            bootstrap_servers=bootstrap, group_id=name, enable_auto_commit=False
        )

    async def __aenter__(self) -> Group:
        await self._client.start()
        self._client.assign(self._partitions)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._client.stop()

    async def sample(self) -> tuple[float, int, int]:
        ends = await self._client.end_offsets(self._partitions)
        done = await asyncio.gather(*(self._client.committed(each) for each in self._partitions))
        return time.monotonic(), sum(each or 0 for each in done), sum(ends.values())

    async def followed(self, seconds: float) -> Standing:
        """Take samples for so long."""
        standing, until = Standing(), time.monotonic() + seconds
        while time.monotonic() < until:
            standing.samples.append(await self.sample())
            await asyncio.sleep(EVERY_SECONDS)
        return standing
