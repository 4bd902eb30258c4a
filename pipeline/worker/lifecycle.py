"""A worker from start to stop: its agents run, are saved and watched, and are saved once more at the end."""

from __future__ import annotations

import asyncio
import gc
import os
import socket
import time
from collections.abc import Coroutine, Mapping, Sequence
from typing import Any, NoReturn

import structlog
import uvloop

from connectors.kafka.encoding import Prefixes
from connectors.kafka.zstd import QUICK, keep_zstd_contexts
from connectors.process.collector import GC_THRESHOLDS
from connectors.process.errors import OperatorError
from connectors.process.health_pages import HealthPages
from connectors.process.leaving import leave
from connectors.process.limited_log import LogLimiter
from connectors.process.registry import Registry
from connectors.process.stopping import Stop, done_before
from connectors.process.waiting import Waiting
from pipeline.clickhouse.rollups import Rollups
from pipeline.clickhouse.writer import Tables
from pipeline.kafka.identity import TopicWatch
from pipeline.kafka.membership import group_name
from pipeline.kafka.rights import CHOICES
from pipeline.kafka.topics import Found
from pipeline.worker.agent import Agent
from pipeline.worker.checkpoint.log import without_expected_warnings
from pipeline.worker.checkpoint.rounds import CheckpointRounds
from pipeline.worker.choices.agent import ChoicesAgent
from pipeline.worker.consumer.app import state_directory
from pipeline.worker.consumer.memberships import Memberships
from pipeline.worker.exits import ExitCode, fatal
from pipeline.worker.fleet_figures import fleet_figures
from pipeline.worker.preparation import agents_of, prepare
from pipeline.worker.roles.fleet import FleetRole
from pipeline.worker.roles.replica import ReplicaRole
from pipeline.worker.roles.role import Role
from pipeline.worker.sink.figures import Figures
from pipeline.worker.sink.recent import RecentRows
from pipeline.worker.sink.sink import Sink
from pipeline.worker.sink.store import StoreRows
from pipeline.worker.telemetry import WorkerMetrics
from pipeline.worker.watching import of_kafka, raise_crash, watch_progress, watched
from schemas.settings import Settings

_SAVING_SHARE = 0.75
"""Share of the time for a stop that the last checkpoint may take."""
# Below these, Kafka and ClickHouse would see little else than checkpoints, and a slow round would look
# like a stall.
_MIN_CHECKPOINT_SECONDS = 0.05
_HOLD_CHECKPOINTS = 2.0

_log = structlog.get_logger(__name__)


def run(settings: Settings) -> None:
    """Run the replica and the fleet agent until SIGTERM or SIGINT, then save and return.

    It first waits for Kafka and ClickHouse, topics, tables and rights. Raises LoginRefused, TopicMismatch,
    CertificateUnreadable, PortUnavailable or StoreUnavailable when it cannot start. Anything that invalidates
    the state in memory ends the process at once with an ExitCode, without unwinding: nothing may be written.
    """
    # Faust creates the loop of its consumer thread through the policy, so uvloop has to be set there.
    uvloop.install()
    keep_zstd_contexts(QUICK)
    without_expected_warnings()
    asyncio.run(_run(settings))


async def _run(settings: Settings) -> None:
    stop = Stop()
    stop.at_signals()
    metrics = WorkerMetrics()
    store = _store(settings, metrics)
    recent: list[RecentRows] = []
    waiting = Waiting(lambda reason: _log.warning("waiting", reason=reason))
    memberships = Memberships(state_directory(settings))
    agents: list[Agent[Any, Any]] = []
    pages = HealthPages(
        settings.worker.metrics_host,
        settings.worker.metrics_port,
        setting="worker.metrics_port",
        registry=metrics.registry,
        # Once it runs, ClickHouse no longer counts: the backlog is safe in Kafka.
        unready=lambda: waiting.cause or _unready(agents),
        more=None if store else {"/fleet/metrics": lambda: fleet_figures(recent)},
    )
    await pages.start()
    preparing = asyncio.create_task(prepare(settings, _groups(settings), memberships, waiting))
    if not await done_before(stop, preparing):
        await _end(pages)
    gc.freeze()
    gc.set_threshold(*GC_THRESHOLDS)
    work = _Work(settings, metrics, store, recent, memberships, *preparing.result())
    agents += work.agents
    work.begin()
    await stop.wait()
    _log.info("stopping")
    await work.finish(stop.within(settings.worker.stop_seconds))
    await _end(pages)


class _Work:
    """All that a worker does once it has what it needs."""

    def __init__(
        self,
        settings: Settings,
        metrics: WorkerMetrics,
        store: StoreRows | None,
        recent: list[RecentRows],
        memberships: Memberships,
        found: Mapping[str, Found],
        prefixes: Prefixes,
    ) -> None:
        """`recent` gets an object per agent that keeps its recent rows, if there is no store."""
        self._settings = settings
        self._metrics = metrics
        self._store = store
        self._recent = recent
        self._memberships = memberships
        self._found = found
        self._figures = (
            Figures(settings.kafka, found["figures"].partitions, prefixes) if settings.kafka.figures else None
        )
        roles = _roles(settings, found, prefixes)
        self._watch = _watch(settings, roles, found)
        hold_seconds = max(1.0, _HOLD_CHECKPOINTS * settings.worker.checkpoint_seconds)
        self.agents: list[Agent[Any, Any]] = [
            Agent(
                settings,
                role,
                CheckpointRounds(
                    self._sink(), metrics, hold_seconds=hold_seconds, same_topics=self._watch.look
                ),
                metrics,
                topics=self._watch.ids,
                fatal=fatal,
                joined=memberships.note,
            )
            for role in roles
        ]
        self._rounds: list[asyncio.Task[None]] = []
        self._choices: list[asyncio.Task[None]] = []
        self._tasks: list[asyncio.Task[None]] = []

    def _sink(self) -> Sink:
        if self._store is None:
            self._recent.append(RecentRows())
        recent = self._recent[-1] if self._recent else None
        return Sink(self._metrics, store=self._store, figures=self._figures, recent=recent)

    def _far_behind(self) -> bool:
        return any(agent.far_behind for agent in self.agents)

    def begin(self) -> None:
        """Start everything; what fails from here on ends the process."""
        settings, metrics, agents = self._settings, self._metrics, self.agents
        every = max(settings.worker.checkpoint_seconds, _MIN_CHECKPOINT_SECONDS)
        for agent in agents:
            shared = next(topic for topic in self._found.values() if topic.name == agent.role.topic)
            metrics.topic_partitions.labels(agent.role.name).set(shared.partitions)
        # Staggered, so that their pauses do not add up, and what one commits is soon in the other's round.
        self._rounds = [
            watched(agent.checkpoint_every(every, every * number / len(agents), far_behind=self._far_behind))
            for number, agent in enumerate(agents)
        ]
        self._tasks = [watched(self._watch.run())]
        if self._store is not None:
            self._tasks += map(watched, self._store.work(settings, far_behind=self._far_behind))
        if settings.worker.agents != "replica":
            choices = ChoicesAgent(
                settings,
                self._sink(),
                metrics,
                topic_id=self._found[CHOICES].id,
                every=every,
                joined=self._memberships.note,
            )
            self._choices = [watched(choices.run())]
        if self._store is None and settings.otlp.endpoint:
            # Its failure does not end the worker.
            self._tasks.append(asyncio.create_task(_pushing(settings, self._recent, metrics)))
        limiter = LogLimiter()
        for agent in agents:
            self._tasks += [
                watched(of_kafka(settings, watch_progress(settings, agent, metrics, limiter))),
                watched(of_kafka(settings, raise_crash(agent))),
                # Returns when partitions are assigned, which may take long: a signal must not wait for that.
                watched(of_kafka(settings, agent.app.start())),
            ]

    async def finish(self, seconds: float) -> None:
        """Save what was applied, give the partitions up, and write what the store still lacks."""
        deadline = time.monotonic() + seconds
        for task in (*self._tasks, *self._choices):
            task.cancel()
        try:
            await asyncio.gather(*(agent.stop(_SAVING_SHARE * seconds) for agent in self.agents))
        except OperatorError as error:
            fatal(error)
        for task in self._rounds:
            task.cancel()
        leaving = [*self._choices, *(asyncio.create_task(agent.app.stop()) for agent in self.agents)]
        last = [*leaving]
        if self._store is not None:
            left = max(0.0, deadline - time.monotonic())
            last.append(asyncio.create_task(self._store.rollups.finish(left)))
        await asyncio.wait(last, timeout=max(0.0, deadline - time.monotonic()))
        if all(task.done() for task in leaving):
            self._memberships.forget()


async def _end(pages: HealthPages) -> NoReturn:
    """End the process: what counts is saved, and threads that compile or wait for a server do not hold it."""
    await pages.stop()
    _log.info("stopped")
    leave(ExitCode.OK)


def _unready(agents: Sequence[Agent[Any, Any]]) -> str | None:
    if not agents:
        return "compiling, or looking for Kafka and ClickHouse"
    return None if all(agent.ready for agent in agents) else "waiting for partitions"


def _groups(settings: Settings) -> list[str]:
    agents = agents_of(settings)
    return [group_name(settings.kafka, name) for name in (*agents, *([CHOICES] if "fleet" in agents else []))]


def _roles(settings: Settings, found: Mapping[str, Found], prefixes: Prefixes) -> list[Role[Any, Any]]:
    shards, partitions = found["residency"].partitions, found["events"].partitions
    roles: list[Role[Any, Any]] = [
        ReplicaRole(settings, shards=shards, partitions=partitions, prefixes=prefixes),
        FleetRole(settings, shards=shards, prefixes=prefixes),
    ]
    return [role for role in roles if role.name in agents_of(settings)]


def _watch(settings: Settings, roles: Sequence[Role[Any, Any]], found: Mapping[str, Found]) -> TopicWatch:
    """Return a watch over the topics that the roles and choices read, or resume at an offset of."""
    saved = frozenset[str]().union(*(role.saved_topics for role in roles))
    used = {*saved, *(role.checkpoints for role in roles)}
    if settings.worker.agents != "replica":
        used.add(found[CHOICES].name)
    return TopicWatch(settings.kafka, (topic for topic in found.values() if topic.name in used), saved=saved)


def _store(settings: Settings, metrics: WorkerMetrics) -> StoreRows | None:
    if not settings.clickhouse.url:
        return None
    return StoreRows(Tables(settings.clickhouse), Rollups(settings.clickhouse, metrics), metrics)


def _pushing(
    settings: Settings, recent: list[RecentRows], metrics: WorkerMetrics
) -> Coroutine[Any, Any, None]:
    from pipeline.otlp.push import Push

    async def figures() -> Registry:
        return fleet_figures(recent)

    instance = f"{socket.gethostname()}:{os.getpid()}"
    return Push(settings.otlp.endpoint, figures, metrics.registry, instance=instance).run()
