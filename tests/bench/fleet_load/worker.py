"""A worker, with the replica agent, the fleet agent or both, under the load of many replicas."""

from __future__ import annotations

import asyncio
import os
import subprocess
import time
from contextlib import AsyncExitStack

from connector import metric
from processes import launched

from fleet_load.load import Load
from fleet_load.measured import Measured, Spending, Spent
from fleet_load.pauses import Pauses
from fleet_load.replicas import BATCHES_A_SECOND, RECORDS_A_SECOND, SECONDS, SETTLE_SECONDS
from fleet_load.standing import Group, Standing
from pipeline.clickhouse import migrations
from pipeline.kafka import topics
from pipeline.local.processes.ports import free_port
from schemas.settings import ClickHouse, Kafka, Settings

START_SECONDS = 300.0
TOPICS = {"replica": "events", "fleet": "residency"}
"""What each agent reads."""


def measured(bootstrap: str, store_url: str, replicas: int, part: str) -> Measured:
    """Measure a part: `replica`, `fleet`, or `worker` for both agents."""
    prefix = f"bench-load-{part}-{replicas}"
    settings = Settings(
        kafka=Kafka(bootstrap_servers=bootstrap, topic_prefix=prefix, group=prefix),
        clickhouse=ClickHouse(url=store_url, database=prefix.replace("-", "_")),
    )
    asyncio.run(topics.apply(settings))
    migrations.apply(settings)
    port = free_port()
    environment = {
        **os.environ,
        "KVLENS_KAFKA__BOOTSTRAP_SERVERS": bootstrap,
        "KVLENS_KAFKA__TOPIC_PREFIX": prefix,
        "KVLENS_KAFKA__GROUP": prefix,
        "KVLENS_CLICKHOUSE__URL": store_url,
        "KVLENS_CLICKHOUSE__DATABASE": settings.clickhouse.database,
        "KVLENS_WORKER__AGENTS": "both" if part == "worker" else part,
        "KVLENS_WORKER__METRICS_PORT": str(port),
    }
    agents = ("replica", "fleet") if part == "worker" else (part,)
    module = "changes" if part == "fleet" else "records"
    topic = f"{prefix}.{TOPICS[agents[0]]}.v1"
    with Load(module, [bootstrap, topic, str(replicas)]) as load:
        load.heard("ready")
        load.tell("open")
        load.heard("opened")
        with launched(["work"], environment) as process:
            names = [(f"{prefix}.{TOPICS[agent]}.v1", f"{prefix}.{agent}") for agent in agents]
            spent, pause, standings = asyncio.run(_followed(bootstrap, names, process, port, load))
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
    return Measured(part, replicas, share, spent, batches, records, pause, lag, paced)


async def _followed(
    bootstrap: str, names: list[tuple[str, str]], process: subprocess.Popen[bytes], port: int, load: Load
) -> tuple[Spent, float, list[Standing]]:
    """Return what the process took, the longest pause, and how far each group got."""
    async with AsyncExitStack() as stack:
        groups = [await stack.enter_async_context(Group(bootstrap, *name)) for name in names]
        await _caught_up(groups, process, port)
        load.tell("go")
        await asyncio.sleep(SETTLE_SECONDS)
        spending = Spending(process.pid)
        with Pauses(port) as pauses:
            standings = await asyncio.gather(*(group.followed(SECONDS) for group in groups))
        return spending.spent(), pauses.longest, standings


async def _caught_up(groups: list[Group], process: subprocess.Popen[bytes], port: int) -> None:
    """Wait until nothing is left to apply and no group moves any more."""
    began, before = time.monotonic(), [-1]
    while True:
        standing = [done for _, done, _ in [await group.sample() for group in groups]]
        if standing == before and all(standing) and not metric(port, "kvlens_worker_lag"):
            return
        if process.poll() is not None or time.monotonic() - began > START_SECONDS:
            raise SystemExit(f"the worker did not catch up: it committed {standing} offsets")
        before = standing
        await asyncio.sleep(3)
