"""The watchdog ends a worker that stands still with lag, and no other."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any

import pytest
from aiokafka import TopicPartition

from connectors.process.limited_log import LogLimiter
from pipeline.errors import Stalled
from pipeline.worker import watching
from pipeline.worker.telemetry import WorkerMetrics
from pipeline.worker.watchdog import PartitionProgress, Watchdog
from schemas.settings import Settings


def test_lag_without_progress_is_a_stall() -> None:
    dog = Watchdog("events", 60.0)
    dog.observe(0.0, {0: PartitionProgress(5, 9), 1: PartitionProgress(5, 5)}, excused=False)
    dog.observe(59.0, {0: PartitionProgress(5, 9), 1: PartitionProgress(5, 5)}, excused=False)
    with pytest.raises(Stalled, match=r"events\[0\] has 4 records waiting"):
        dog.observe(60.0, {0: PartitionProgress(5, 9), 1: PartitionProgress(5, 5)}, excused=False)


def test_progress_idleness_excuses_and_new_owners_are_no_stall() -> None:
    dog = Watchdog("events", 10.0)
    for now in range(0, 100, 5):
        dog.observe(now, {0: PartitionProgress(now, 1000), 1: PartitionProgress(7, 7)}, excused=False)
    dog.observe(100.0, {0: PartitionProgress(95, 1000)}, excused=True)
    dog.observe(109.0, {0: PartitionProgress(95, 1000)}, excused=False)
    dog.observe(200.0, {}, excused=False)
    dog.observe(300.0, {0: PartitionProgress(95, 1000)}, excused=False)
    dog.observe(309.0, {0: PartitionProgress(95, 1000)}, excused=False)


async def test_the_lag_of_a_partition_given_up_meanwhile_is_not_exported_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    place = TopicPartition("events", 3)

    @asynccontextmanager
    async def started(**_: Any) -> AsyncIterator[Any]:
        async def offsets(_: Any) -> dict[TopicPartition, int]:
            return {place: 9}

        yield SimpleNamespace(end_offsets=offsets, beginning_offsets=offsets)

    async def reached(number: int) -> int:
        agent.owned.clear()
        return 5

    role = SimpleNamespace(topic="events", name="fleet", committed=True)
    agent: Any = SimpleNamespace(role=role, owned={3: None}, rebalancing=True, holding=False, reached=reached)
    monkeypatch.setattr(watching, "started_consumer", started)
    monkeypatch.setattr(watching, "_WATCH_SECONDS", 0.01)
    metrics = WorkerMetrics()
    looks = watching.watch_progress(Settings(), agent, metrics, LogLimiter())
    with pytest.raises(asyncio.TimeoutError):
        await asyncio.wait_for(looks, 0.1)
    assert not agent.owned
    labels = {"agent": "fleet", "partition": "3"}
    assert metrics.registry.get_sample_value("kvlens_worker_lag_records", labels) is None
