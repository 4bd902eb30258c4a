"""A worker from start to stop: its agents run, are saved and watched, and are saved once more at the end."""

from __future__ import annotations

import asyncio
import gc
import time
from collections.abc import Awaitable, Coroutine, Mapping, Sequence
from typing import Any, NoReturn

import structlog
import uvloop
from aiokafka import TopicPartition

from connectors.kafka.consumer import started_consumer
from connectors.kafka.errors import KAFKA_FAILURES, failure_reason
from connectors.kafka.security import client_options
from connectors.kafka.zstd import QUICK, keep_zstd_contexts
from connectors.process.collector import GC_THRESHOLDS
from connectors.process.errors import OperatorError
from connectors.process.health_pages import HealthPages
from connectors.process.leaving import leave
from connectors.process.limited_log import LogLimiter
from connectors.process.stopping import Stop, done_before
from connectors.process.waiting import Waiting
from pipeline.clickhouse.rollups import Rollups
from pipeline.clickhouse.writer import Tables
from pipeline.errors import KafkaUnavailable
from pipeline.kafka.identity import TopicWatch
from pipeline.kafka.membership import group_name
from pipeline.kafka.rights import AGENTS, CHOICES
from pipeline.kafka.topics import Found
from pipeline.worker.agent import Agent, state_directory
from pipeline.worker.checkpoint.log import without_expected_warnings
from pipeline.worker.checkpoint.rounds import CheckpointRounds
from pipeline.worker.choices.agent import ChoicesAgent
from pipeline.worker.consumer.memberships import Memberships
from pipeline.worker.exits import ExitCode, fatal
from pipeline.worker.fleet_page import fleet_page
from pipeline.worker.partition import Role
from pipeline.worker.preparation import prepare
from pipeline.worker.roles import fleet_agent, replica_agent
from pipeline.worker.sink.figures import Figures
from pipeline.worker.sink.recent import RecentRows
from pipeline.worker.sink.sink import Sink
from pipeline.worker.sink.store import StoreRows
from pipeline.worker.telemetry import WorkerMetrics
from pipeline.worker.watchdog import Standing, Watchdog
from schemas.settings import Settings, Worker

_SAVING_SHARE = 0.75
"""Part of the time for a stop that the last checkpoint may take."""
# Below these, Kafka and ClickHouse would see little else than checkpoints, and a slow round would look
# like a stall.
_MIN_CHECKPOINT_SECONDS = 0.05
STALL_SECONDS = 60.0
"""A worker that has lag but makes no progress for this long ends itself, to be restarted."""
_WATCH_SECONDS = 5.0
_HOLD_CHECKPOINTS = 2.0

_log = structlog.get_logger(__name__)


def run(settings: Settings) -> None:
    """Run the replica and the fleet agent until SIGTERM or SIGINT, then save and return.

    It waits for Kafka and ClickHouse, topics, tables and rights. Raises LoginRefused, CertificateUnreadable,
    TopicMismatch, PortUnavailable or StoreUnavailable when it cannot start. Whatever makes the state in
    memory void ends the process at once with an ExitCode, without unwinding: nothing may be written then.
    """
    # Faust makes its consumer thread's loop through the policy, so the policy is where uvloop belongs.
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
    agents: list[Agent] = []
    pages = HealthPages(
        settings.worker.metrics_host,
        settings.worker.metrics_port,
        setting="worker.metrics_port",
        registry=metrics.registry,
        # Once it runs, ClickHouse is left out: the backlog is safe in Kafka.
        unready=lambda: waiting.cause or _unready(agents),
        more=None if store else {"/fleet/metrics": lambda: fleet_page(recent)},
    )
    await pages.start()
    preparing = asyncio.create_task(prepare(settings, _groups(settings), memberships, waiting))
    if not await done_before(stop, preparing):
        await _end(pages)
    found = preparing.result()
    gc.freeze()
    gc.set_threshold(*GC_THRESHOLDS)
    roles = [
        role
        for role in (
            replica_agent(
                settings, shards=found["residency"].partitions, partitions=found["events"].partitions
            ),
            fleet_agent(settings, shards=found["residency"].partitions),
        )
        if settings.worker.agents in ("both", role.name)
    ]
    watch = _watch(settings, roles, found)
    figures = Figures(settings.kafka, found["figures"].partitions) if settings.kafka.figures else None

    def sink() -> Sink:
        if store is None:
            recent.append(RecentRows())
        return Sink(metrics, store=store, figures=figures, recent=recent[-1] if recent else None)

    agents += [
        Agent(
            settings,
            role,
            _rounds(settings.worker, sink(), metrics, watch),
            metrics,
            topics=watch.ids,
            fatal=fatal,
            joined=memberships.note,
        )
        for role in roles
    ]
    for agent in agents:
        shared = next(topic for topic in found.values() if topic.name == agent.role.topic)
        metrics.topic_partitions.labels(agent.role.name).set(shared.partitions)
    every = max(settings.worker.checkpoint_seconds, _MIN_CHECKPOINT_SECONDS)

    def far_behind() -> bool:
        return any(agent.far_behind for agent in agents)

    # In turns, so that their pauses do not add up, and what one commits is soon in the other's round.
    rounds = [
        _watched(agent.checkpoint_every(every, every * number / len(agents), far_behind=far_behind))
        for number, agent in enumerate(agents)
    ]
    tasks = [_watched(watch.run())]
    if store is not None:
        tasks += map(_watched, store.work(settings, far_behind=far_behind))
    if settings.worker.agents != "replica":
        topic_id = found[CHOICES].id
        choices = ChoicesAgent(
            settings, sink(), metrics, topic_id=topic_id, every=every, joined=memberships.note
        )
        tasks.append(_watched(choices.run()))
    limiter = LogLimiter()
    for agent in agents:
        tasks += [
            _watched(_of_kafka(settings, _watch_progress(settings, agent, metrics, limiter))),
            _watched(_of_kafka(settings, _raise_crash(agent))),
            # Returns when partitions are assigned, which may take long: a signal must not wait for that.
            _watched(_of_kafka(settings, agent.app.start())),
        ]
    await stop.wait()
    _log.info("stopping")
    stop_seconds = stop.within(settings.worker.stop_seconds)
    deadline = time.monotonic() + stop_seconds
    for task in tasks:
        task.cancel()
    try:
        saving = _SAVING_SHARE * stop_seconds
        await asyncio.gather(*(agent.stop(saving) for agent in agents))
    except OperatorError as error:
        fatal(error)
    for task in rounds:
        task.cancel()
    leaving = [asyncio.create_task(agent.app.stop()) for agent in agents]
    last = [*leaving]
    if store is not None:
        last.append(asyncio.create_task(store.finish(max(0.0, deadline - time.monotonic()))))
    await asyncio.wait(last, timeout=max(0.0, deadline - time.monotonic()))
    if all(task.done() for task in leaving):
        memberships.forget()
    await _end(pages)


async def _end(pages: HealthPages) -> NoReturn:
    """End the process: what counts is saved, and no thread that compiles or waits for a server holds it."""
    await pages.stop()
    _log.info("stopped")
    leave(ExitCode.OK)


def _unready(agents: Sequence[Agent]) -> str | None:
    if not agents:
        return "compiling, or looking for Kafka and ClickHouse"
    return None if all(agent.ready for agent in agents) else "waiting for partitions"


def _groups(settings: Settings) -> list[str]:
    agents = [agent for agent in AGENTS if settings.worker.agents in ("both", agent)]
    return [group_name(settings.kafka, name) for name in (*agents, *([CHOICES] if "fleet" in agents else []))]


def _watch(settings: Settings, roles: Sequence[Role], found: Mapping[str, Found]) -> TopicWatch:
    """Return what looks at all topics that the roles, and choices, read or resume at an offset of."""
    saved = frozenset[str]().union(*(role.saved_topics for role in roles))
    used = {*saved, *(role.checkpoints for role in roles)}
    if settings.worker.agents != "replica":
        used.add(found[CHOICES].name)
    return TopicWatch(settings.kafka, (topic for topic in found.values() if topic.name in used), saved=saved)


def _store(settings: Settings, metrics: WorkerMetrics) -> StoreRows | None:
    if not settings.clickhouse.url:
        return None
    return StoreRows(Tables(settings.clickhouse), Rollups(settings.clickhouse, metrics), metrics)


def _rounds(worker: Worker, sink: Sink, metrics: WorkerMetrics, watch: TopicWatch) -> CheckpointRounds:
    hold_seconds = max(1.0, _HOLD_CHECKPOINTS * worker.checkpoint_seconds)
    return CheckpointRounds(sink, metrics, hold_seconds=hold_seconds, same_topics=watch.look)


def _watched(work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
    """A task whose failure ends the process."""

    def ended(task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            fatal(error)

    task = asyncio.create_task(work)
    task.add_done_callback(ended)
    return task


async def _of_kafka(settings: Settings, work: Awaitable[None]) -> None:
    """Await what fails when the brokers go away meanwhile. Raises KafkaUnavailable then."""
    try:
        await work
    except KAFKA_FAILURES as error:
        raise KafkaUnavailable(settings.kafka.bootstrap_servers, failure_reason(error)) from error


async def _raise_crash(agent: Agent) -> None:
    """Raise what crashed a service of Faust, which would otherwise go on half alive."""
    while not agent.app.crashed:  # noqa: ASYNC110 - Faust tells by a property only
        await asyncio.sleep(0.5)
    raise agent.app.crash_reason or RuntimeError("Faust stopped without a reason")


async def _watch_progress(
    settings: Settings, agent: Agent, metrics: WorkerMetrics, limiter: LogLimiter
) -> None:
    """Ask the broker, with a client of our own, how many records wait; end a worker that stands still."""
    role, servers = agent.role, settings.kafka.bootstrap_servers
    watchdog = Watchdog(role.topic, STALL_SECONDS)
    async with started_consumer(
        isolation_level="read_committed" if role.committed else "read_uncommitted",
        **client_options(settings.kafka),
    ) as client:
        while True:
            await asyncio.sleep(_WATCH_SECONDS)
            partitions = [TopicPartition(role.topic, number) for number in agent.owned]
            try:
                ends = await asyncio.wait_for(client.end_offsets(partitions), _WATCH_SECONDS)
                begins = await asyncio.wait_for(client.beginning_offsets(partitions), _WATCH_SECONDS)
            except KAFKA_FAILURES as error:
                ends, begins = {}, {}
                if (suppressed := limiter.admit("unanswered")) is not None:
                    reason = failure_reason(error)
                    _log.warning("Kafka does not answer", address=servers, reason=reason, **suppressed)
            if not agent.rebalancing:
                agent.require_not_removed({place.partition: begin for place, begin in begins.items()})
            standings = {
                partition.partition: Standing(await agent.reached(partition.partition), end)
                for partition, end in ends.items()
                if partition.partition in agent.owned
            }
            for number, standing in standings.items():
                lag = max(0, standing.end - standing.next_offset)
                metrics.lag.labels(role.name, str(number)).set(lag)
            excused = agent.rebalancing or agent.holding
            watchdog.observe(time.monotonic(), standings, excused=excused)
