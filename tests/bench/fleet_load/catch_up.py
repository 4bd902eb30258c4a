"""Workers that were away: how long they take for what was written meanwhile, by its length."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from operator import sub
from statistics import median

from checkout import THIS
from figures import Figures
from large_fleet import BLOCKS_A_SECOND
from processes import child_with, cpu_seconds, waited_seconds

from fleet_load.installation import TOPICS, Installation, agents_of
from fleet_load.line import fitted
from fleet_load.load import Load
from fleet_load.replicas import PARTITIONS
from fleet_load.standing import Group
from fleet_load.worker import caught_up
from schemas.settings import Fleet

SOURCES = (250, 1_000)
LENGTHS = (60, 120, 240)
"""Seconds of load."""
HOUR = 3600.0
LOOK_SECONDS = 0.1
STILL_SECONDS = 12.0
"""Without a checkpoint of the fleet agent, nothing being left to apply: three of its longest pauses."""
_BROKER, _STORE = "kafka.Kafka", "pipeline.local.clickhouse"


@dataclass(frozen=True)
class CaughtUp:
    start: float
    """Seconds from the start of the processes to the first partitions."""
    seconds: float
    """From there until everything is committed in both groups."""
    cpu: float
    """CPU seconds of all workers in that time."""
    broker: float
    store: float
    """CPU seconds of these two, which have the same cores."""
    waited: float
    """Seconds of it that their main threads were ready while others had the cores."""


def run(
    figures: Figures,
    bootstrap: str,
    store_url: str,
    *,
    sources: Sequence[int],
    workers: Sequence[str],
    lengths: Sequence[int],
) -> None:
    """Measure with each number of replicas and of workers; a line through the lengths, for an hour."""
    for replicas in sources:
        for processes in workers:
            taken = [
                asyncio.run(_measured(bootstrap, store_url, replicas, processes, seconds))
                for seconds in lengths
            ]
            _tell(figures, f"fleet-catch-up, {replicas:,} replicas, workers {processes}", lengths, taken)


def until_full(replicas: int) -> int:
    """Return after how many seconds of load the fleet agent remembers as many losses as it may, or nearly.

    A fleet that was not set up just now has come to that; before, a backlog makes the state grow, and takes
    more than its time for it.
    """
    return math.ceil(1.05 * Fleet().max_ghosts * PARTITIONS / (BLOCKS_A_SECOND * replicas))


async def _measured(bootstrap: str, store_url: str, replicas: int, processes: str, seconds: int) -> CaughtUp:
    """Measure a backlog of a fleet of its own, which has come to the state of one that has run for long."""
    name = f"bench-catch-up-{replicas}-{processes}-{seconds}"
    installation = Installation(THIS, bootstrap, store_url, name)
    installation.prepare()
    backlogs = [str(until_full(replicas)), str(seconds)]
    events = installation.topic("events")
    with Load("backlog", [bootstrap, events, str(replicas), *backlogs]) as load:
        load.tell("open")
        load.heard("opened")
        load.tell("write")
        load.heard("written")
        await _caught_up(installation, processes, rest=True)
        load.tell("write")
        load.heard("written")
        return await _caught_up(installation, processes)


def _tell(figures: Figures, name: str, lengths: Sequence[int], taken: Sequence[CaughtUp]) -> None:
    for seconds, one in zip(lengths, taken, strict=True):
        figures.add(f"{name}: {seconds} s of load", one.seconds, "s")
        figures.add(f"{name}: {seconds} s of load, CPU", one.cpu, "s")
        figures.add(f"{name}: {seconds} s of load, CPU of the broker", one.broker, "s")
        figures.add(f"{name}: {seconds} s of load, CPU of the store", one.store, "s")
        figures.add(f"{name}: {seconds} s of load, waited for a core", one.waited, "s")
    figures.add(f"{name}: start, until partitions are loaded", median(one.start for one in taken), "s")
    if len(lengths) > 1:
        line = fitted([*zip(lengths, [one.seconds for one in taken], strict=True)])
        cpu = fitted([*zip(lengths, [one.cpu for one in taken], strict=True)])
        figures.add(f"{name}: a second of load", line.slope, "s")
        figures.add(f"{name}: a second of load, CPU", cpu.slope, "s")
        figures.add(f"{name}: no load, by the line", line.intercept, "s")
        figures.add(f"{name}: apart from the line at most", line.apart * 100, "%")
        figures.add(f"{name}: an hour of load, by the line", line.at(HOUR) / 60, "min")


async def _caught_up(installation: Installation, processes: str, *, rest: bool = False) -> CaughtUp:
    """Run workers until nothing is left to do, and with `rest` no base to write either: whoever starts behind
    applies again what follows it."""
    async with AsyncExitStack() as stack:
        names = installation.groups([*TOPICS])
        groups = [await stack.enter_async_context(Group(installation.bootstrap, *name)) for name in names]
        began = time.monotonic()
        with installation.workers(agents_of(processes)) as workers:
            while not any(worker.owns for worker in workers):
                for worker in workers:
                    worker.check()
                await asyncio.sleep(LOOK_SECONDS)
            pids = [worker.process.pid for worker in workers]
            others = child_with(_BROKER), child_with(_STORE)

            def spent() -> list[float]:
                mine = sum(map(cpu_seconds, pids)), *map(cpu_seconds, others)
                return [*mine, sum(map(waited_seconds, pids))]

            owned, before = time.monotonic(), spent()
            done = await caught_up(groups, workers)
            cpu, broker, store, waited = map(sub, spent(), before)
            if rest:
                await _at_rest(installation)
            return CaughtUp(owned - began, done - owned, cpu, broker, store, waited)


async def _at_rest(installation: Installation) -> None:
    """Wait until the fleet agent writes no checkpoints any more."""
    topic = installation.topic("checkpoints.fleet")
    async with Group(installation.bootstrap, topic, installation.prefix) as checkpoints:
        _, _, before = await checkpoints.sample()
        still_since = time.monotonic()
        while (now := time.monotonic()) < still_since + STILL_SECONDS:
            await asyncio.sleep(LOOK_SECONDS)
            _, _, end = await checkpoints.sample()
            if end != before:
                before, still_since = end, now
