"""What ends a worker that cannot go on: a task that fails, a consumer that crashed, a standstill."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Coroutine
from typing import Any

import structlog
from aiokafka import TopicPartition

from connectors.kafka.consumer import started_consumer
from connectors.kafka.errors import KAFKA_FAILURES, failure_reason
from connectors.kafka.security import client_options
from connectors.process.limited_log import LogLimiter
from pipeline.errors import KafkaUnavailable
from pipeline.worker.agent import Agent
from pipeline.worker.exits import fatal
from pipeline.worker.telemetry import WorkerMetrics
from pipeline.worker.watchdog import PartitionProgress, Watchdog
from schemas.settings import Settings

STALL_SECONDS = 60.0
"""A worker that has lag but makes no progress for this long ends itself, to be restarted."""
_WATCH_SECONDS = 5.0

_log = structlog.get_logger(__name__)


def watched(work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
    """Return a task whose failure ends the process."""

    def ended(task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            fatal(error)

    task = asyncio.create_task(work)
    task.add_done_callback(ended)
    return task


async def of_kafka(settings: Settings, work: Awaitable[None]) -> None:
    """Await `work`; raise KafkaUnavailable if the brokers go away meanwhile."""
    try:
        await work
    except KAFKA_FAILURES as error:
        raise KafkaUnavailable(settings.kafka.bootstrap_servers, failure_reason(error)) from error


async def raise_crash(agent: Agent[Any, Any]) -> None:
    """Raise what crashed a service of Faust, which would otherwise go on half alive."""
    while not agent.app.crashed:  # noqa: ASYNC110 - Faust tells by a property only
        await asyncio.sleep(0.5)
    raise agent.app.crash_reason or RuntimeError("Faust stopped without a reason")


async def watch_progress(
    settings: Settings, agent: Agent[Any, Any], metrics: WorkerMetrics, limiter: LogLimiter
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
            owned = {
                partition.partition: PartitionProgress(await agent.reached(partition.partition), end)
                for partition, end in ends.items()
                if partition.partition in agent.owned
            }
            for number, progress in owned.items():
                if number in agent.owned:  # else given up meanwhile, and its gauges with it
                    lag = max(0, progress.end - progress.next_offset)
                    metrics.lag.labels(role.name, str(number)).set(lag)
            watchdog.observe(time.monotonic(), owned, excused=agent.rebalancing or agent.holding)
