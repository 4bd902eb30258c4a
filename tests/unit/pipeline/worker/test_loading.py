"""Partitions that change hands while they are being loaded hold nobody up."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from types import SimpleNamespace
from typing import Any

import pytest
from faust.types import TP

from pipeline.kafka.checkpoints import Loaded
from pipeline.kafka.committed import Committed
from pipeline.worker import agent as module
from pipeline.worker.agent import Agent
from pipeline.worker.checkpoint.log import CheckpointLog
from pipeline.worker.checkpoint.rounds import CheckpointRounds
from pipeline.worker.roles.replica import ReplicaRole
from pipeline.worker.sink.sink import Sink
from pipeline.worker.telemetry import WorkerMetrics
from schemas.settings import Settings


def test_loading_is_abandoned_when_the_partitions_must_be_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    closed: list[int] = []
    failures: list[BaseException] = []

    async def opened(log: CheckpointLog) -> None: ...

    async def noted(log: CheckpointLog) -> None:
        closed.append(log.partition)

    async def endless(*_: Any, partitions: Sequence[int], **__: Any) -> AsyncIterator[tuple[int, Loaded]]:
        if not closed:
            await asyncio.sleep(3600)
        for number in partitions:
            yield number, Loaded({}, 0, 0)

    async def same() -> None: ...

    async def nothing_committed(*_: Any) -> dict[int, Committed]:
        return {1: Committed(), 3: Committed()}

    monkeypatch.setattr(CheckpointLog, "open", opened)
    monkeypatch.setattr(CheckpointLog, "close", noted)
    monkeypatch.setattr(module, "load", endless)
    monkeypatch.setattr(module, "committed_before", nothing_committed)

    async def handed_over() -> None:
        settings, metrics = Settings(), WorkerMetrics()
        sink = Sink(metrics, store=None, figures=None)
        rounds = CheckpointRounds(sink, metrics, hold_seconds=3600.0, same_topics=same)
        role = ReplicaRole(settings, shards=8)
        agent = Agent(
            settings,
            role,
            rounds,
            metrics,
            topics={},
            fatal=failures.append,
            joined=lambda group, member: None,
        )
        assigned = {TP(role.topic, 1), TP(role.topic, 3)}
        app = SimpleNamespace(
            consumer_generation_id=1, consumer=SimpleNamespace(assignment=lambda: assigned, member_id="m")
        )
        loading = asyncio.ensure_future(agent._assigned(app))
        await asyncio.sleep(0.1)
        assert not loading.done()
        # Minutes for what would take an hour.
        await asyncio.wait_for(agent._revoked(app, assigned), 240)
        await asyncio.wait_for(loading, 240)
        assert agent.owned == {}
        await agent._assigned(app)
        assert sorted(agent.owned) == [1, 3]

    asyncio.run(handed_over())
    assert not failures
    assert sorted(closed) == [1, 3]
