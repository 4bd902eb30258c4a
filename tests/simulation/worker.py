"""A worker process: both agents as `pipeline/worker/lifecycle.py` starts them, without rollups and pages."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable
from typing import cast

from connectors.process.limited_log import LogLimiter
from pipeline.clickhouse.writer import Tables
from pipeline.worker import lifecycle
from pipeline.worker.checkpoint.rounds import CheckpointRounds
from pipeline.worker.roles.fleet import FleetRole
from pipeline.worker.roles.replica import ReplicaRole
from pipeline.worker.sink.figures import Figures
from pipeline.worker.sink.sink import Sink
from pipeline.worker.sink.store import StoreRows
from pipeline.worker.telemetry import WorkerMetrics
from pipeline.worker.watching import watch_progress, watched
from schemas.rows import Row
from schemas.settings import Settings
from tests.simulation import edges
from tests.simulation.app import SimulatedAgent
from tests.simulation.loop import fatal

_METRICS = cast(WorkerMetrics, edges.Unsaid())


class _NoRollups:
    """Minutes and hours are left to the tests of the store."""

    async def announce(self, rows: Iterable[Row]) -> Collection[object]:
        return ()

    async def renew(self, minutes: object) -> None: ...
    def written(self, minutes: object) -> None: ...
    def others_left(self) -> None: ...


async def work(settings: Settings, stop: asyncio.Event) -> None:
    """Run both agents until `stop`, then save."""
    found = {topic.key: topic for topic in await edges.describe(settings)}
    tables = Tables(settings.clickhouse)
    roles = [
        ReplicaRole(settings, shards=found["residency"].partitions, partitions=found["events"].partitions),
        FleetRole(settings, shards=found["residency"].partitions),
    ]
    watch = lifecycle._watch(settings, roles, found)
    store = StoreRows(tables, _NoRollups(), _METRICS)  # type: ignore[arg-type]
    figures = Figures(settings.kafka, found["figures"].partitions)
    agents = []
    for role in roles:
        rounds = CheckpointRounds(
            Sink(_METRICS, store=store, figures=figures),
            _METRICS,
            hold_seconds=max(1.0, 2 * settings.worker.checkpoint_seconds),
            same_topics=watch.look,
            clock=edges.CLOCK.time,
        )
        agents.append(
            SimulatedAgent(
                settings,
                role,
                rounds,
                _METRICS,
                topics=watch.ids,
                fatal=fatal,
                joined=lambda group, member: None,
            )
        )
    every = settings.worker.checkpoint_seconds

    def far_behind() -> bool:
        return any(agent.far_behind for agent in agents)

    saving = [
        watched(agent.checkpoint_every(every, every * number / len(agents), far_behind=far_behind))
        for number, agent in enumerate(agents)
    ]
    tasks = [watched(watch.run())]
    for agent in agents:
        progress = watch_progress(settings, agent, _METRICS, LogLimiter())
        tasks += [watched(progress), watched(agent.app.start())]
    await stop.wait()
    for task in tasks:
        task.cancel()
    await asyncio.gather(*(agent.stop(0.75 * settings.worker.stop_seconds) for agent in agents))
    for task in saving:
        task.cancel()
    await asyncio.gather(*(agent.app.stop() for agent in agents))
