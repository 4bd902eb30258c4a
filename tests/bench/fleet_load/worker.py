"""Workers, with the replica agent, the fleet agent or both, under the load of many replicas."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from contextlib import AsyncExitStack, ExitStack

from fleet_load.installation import TOPICS, Installation, Worker, agents_of
from fleet_load.load import Load
from fleet_load.measured import Measured, Spending, Spent
from fleet_load.pauses import Pauses
from fleet_load.replicas import BATCHES_A_SECOND, PARTITIONS, RECORDS_A_SECOND, SECONDS, SETTLE_SECONDS
from fleet_load.standing import EVERY_SECONDS, Group, Standing

START_SECONDS = 300.0
"""Without any progress, the first of which may follow compiling."""
REST_SECONDS = 3.0
"""A group that does not move for so long, with nothing to do, is done."""
MARKERS = PARTITIONS**2
"""Of transactions, at the ends of the residency topic: nobody reads them, and no group needs to pass them."""


def measured(installation: Installation, replicas: int, part: str, workers: str = "1") -> Measured:
    """Measure a part: `replica`, `fleet`, or `worker` for both agents, in so many processes or `apart`."""
    installation.prepare()
    agents = [*TOPICS] if part == "worker" else [part]
    processes = agents_of(workers) if part == "worker" else agents
    module = "changes" if part == "fleet" else "records"
    topic = installation.topic(TOPICS[agents[0]])
    with Load(module, [installation.bootstrap, topic, str(replicas)]) as load:
        load.heard("ready")
        load.tell("open")
        load.heard("opened")
        with installation.workers(processes) as running:
            names = installation.groups(agents)
            spent, pause, standings = asyncio.run(_followed(installation.bootstrap, names, running, load))
        paced = load.ended()
    share, lag = 1.0, 0.0
    for standing in standings:
        share *= standing.share
        lag += standing.lag_seconds
    records = standings[0].rate
    if part == "fleet":
        batches = replicas * BATCHES_A_SECOND * share
    else:
        batches = records * BATCHES_A_SECOND / RECORDS_A_SECOND * share / standings[0].share
    name = part if workers == "1" else f"{part}s {workers}"
    return Measured(name, replicas, share, spent, batches, records, pause, lag, paced)


async def _followed(
    bootstrap: str, names: list[tuple[str, str]], workers: Sequence[Worker], load: Load
) -> tuple[Spent, float, list[Standing]]:
    """Return what the processes took, the longest pause, and how far each group got."""
    async with AsyncExitStack() as stack:
        groups = [await stack.enter_async_context(Group(bootstrap, *name)) for name in names]
        await caught_up(groups, workers)
        load.tell("go")
        await asyncio.sleep(SETTLE_SECONDS)
        spending = Spending([worker.process.pid for worker in workers])
        with ExitStack() as asking:
            pauses = [asking.enter_context(Pauses(worker.port)) for worker in workers]
            reading = asyncio.create_task(_read(spending))
            standings = await asyncio.gather(*(group.followed(SECONDS) for group in groups))
            reading.cancel()
        return spending.spent(standings[0].span), max(each.longest for each in pauses), standings


async def _read(spending: Spending) -> None:
    while True:
        await asyncio.sleep(EVERY_SECONDS)
        spending.read()


async def caught_up(groups: Sequence[Group], workers: Sequence[Worker]) -> float:
    """Wait until nothing is left to apply and no group moves any more; return when one last moved."""
    began = moved = time.monotonic()
    before: list[int] = []
    while True:
        samples = [await group.sample() for group in groups]
        standing, now = [done for _, done, _ in samples], time.monotonic()
        if standing != before:
            before, moved = standing, now
        elif (
            now - moved > REST_SECONDS
            and all(end - done <= MARKERS for _, done, end in samples)
            and all(standing)
            and not any(worker.at_work for worker in workers)
        ):
            return moved
        for worker in workers:
            worker.check()
        if now - moved > START_SECONDS:
            raise SystemExit(f"the workers did not catch up: after {now - began:.0f} s at {standing} offsets")
        await asyncio.sleep(EVERY_SECONDS)
