"""`kvlens verify` on a log of two lengths: block operations per second and core, and whether memory grows."""

from __future__ import annotations

import asyncio
import gc
import io
import os
import re
import subprocess
import sys
import time
from collections.abc import Mapping
from datetime import datetime, timezone

from agent import block_operations, committed, played_on, produce, records_of
from figures import Figures
from payloads import captures
from processes import launched

from connectors.process.collector import GC_THRESHOLD
from pipeline.clickhouse import migrations
from pipeline.kafka import topics
from pipeline.kafka.acceptance import accepted_residency
from pipeline.kafka.refusal import RecordRefused
from pipeline.verify.against_log import check_log
from pipeline.verify.progress import Progress, ReadingCost
from pipeline.verify.topic_log import opened_topic
from pipeline.worker.warming import warm_up
from schemas.settings import ClickHouse, Kafka, Settings

ROUNDS = int(os.environ.get("BENCH_VERIFY_ROUNDS", "60"))
"""How often each capture is played: 60 times are 10 million block operations."""
SHORT = ROUNDS // 4
"""Rounds of the shorter log."""
PARTITIONS = 8
_MOST_SECONDS = 1800.0


def run(figures: Figures, bootstrap: str, store_url: str) -> None:
    """Measure; needs an empty broker and store."""
    settings = Settings(
        kafka=Kafka(bootstrap_servers=bootstrap, topic_prefix="bench-verify", group="bench-verify"),
        clickhouse=ClickHouse(url=store_url, database="bench_verify"),
    )
    asyncio.run(topics.apply(settings))
    migrations.apply(settings)
    environment = {
        **os.environ,
        "KVLENS_KAFKA__BOOTSTRAP_SERVERS": bootstrap,
        "KVLENS_KAFKA__TOPIC_PREFIX": settings.kafka.topic_prefix,
        "KVLENS_KAFKA__GROUP": settings.kafka.group,
        "KVLENS_CLICKHOUSE__URL": store_url,
        "KVLENS_CLICKHOUSE__DATABASE": settings.clickhouse.database,
    }
    warm_up()
    operations = 0
    for name, rounds in (("short", range(SHORT)), ("long", range(SHORT, ROUNDS))):
        for replica, payloads in captures().items():
            # Of one capture at a time: all of them would not leave the engine much memory.
            records = played_on(records_of(replica, payloads, settings.connector), rounds, seconds=1.0)
            operations += block_operations(records)
            asyncio.run(produce(bootstrap, "bench-verify.events.v1", records, PARTITIONS))
        _work(bootstrap, environment)
        used, peak = _verify(environment)
        log = f"{name} log of {operations / 1e6:.1f} million"
        figures.add(f"verify: {log}", operations / used, "block-ops/s/core")
        figures.add(f"verify: most memory, {log}", peak / 1e6, "MB")
        topics_alone = asyncio.run(_by_topic(settings))
        changes = asyncio.run(_changes(settings))
        figures.add(f"verify: events, {log}", operations / topics_alone.cpu["events"], "block-ops/s/core")
        figures.add(f"verify: residency, {log}", changes / topics_alone.cpu["residency"], "changes/s/core")
        for topic, off in topics_alone.off().items():
            figures.add(f"verify: estimate of {topic}, {log}", off, "of the time it took")


def _work(bootstrap: str, environment: Mapping[str, str]) -> None:
    """Run a worker until both of its agents have committed everything."""
    began = time.monotonic()
    with launched(["work"], environment) as worker:
        for topic, agent in (("events", "replica"), ("residency", "fleet")):
            while True:
                done, end = asyncio.run(
                    committed(bootstrap, f"bench-verify.{topic}.v1", f"bench-verify.{agent}", PARTITIONS)
                )
                # The end of a transaction has an offset of its own, which nobody commits.
                if 0 < end - PARTITIONS * 2 <= done:
                    break
                if worker.poll() is not None or time.monotonic() - began > _MOST_SECONDS:
                    raise SystemExit(f"the worker did not finish: {done} of {end} offsets of {topic}")
                time.sleep(1)


class _ByTopic(Progress):
    """Takes the time of each topic, as if somebody watched."""

    def __init__(self) -> None:
        super().__init__(_Terminal())
        self.cpu: dict[str, float] = {}
        self._wall: dict[str, float] = {}
        self._estimated: dict[str, float] = {}
        self._began: tuple[str, float, float] | None = None

    def estimate(self, costs: Mapping[str, ReadingCost], memory_megabytes: float) -> None:
        self._estimated = {topic: cost.seconds for topic, cost in costs.items()}
        super().estimate(costs, memory_megabytes)

    def partition(self, topic: str, number: int, partitions: int) -> None:
        if not number:
            self._began = topic, time.process_time(), time.monotonic()
        super().partition(topic, number, partitions)

    def step(self, step: str) -> None:
        if self._began is not None and not step.startswith("reading"):
            topic, cpu, wall = self._began
            self.cpu[topic] = time.process_time() - cpu
            self._wall[topic] = time.monotonic() - wall
            self._began = None
        super().step(step)

    def off(self) -> dict[str, float]:
        """Return what was estimated, by what it took."""
        return {topic: seconds / self._wall[topic] for topic, seconds in self._estimated.items()}


class _Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


async def _by_topic(settings: Settings) -> _ByTopic:
    gc.set_threshold(GC_THRESHOLD)
    timed = _ByTopic()
    now = datetime.now(timezone.utc)
    findings = await check_log(settings, now, until=None, patience=60.0, progress=timed)
    if findings.differing:
        raise SystemExit(f"verify found differences: {findings.kept[:3]}")
    return timed


async def _changes(settings: Settings) -> int:
    """Return how many changes of residency the log has."""
    async with opened_topic(settings, "residency", agent="fleet", decode=accepted_residency) as log:
        return sum(
            [
                len(pool.kinds)
                for shard in range(log.partitions)
                async for _, record in log.records(shard, 0, await log.end(shard))
                if not isinstance(record, RecordRefused)
                for source in record.sources
                for pool in source.changes
            ]
        )


def _verify(environment: Mapping[str, str]) -> tuple[float, int]:
    """Return CPU seconds and the largest resident set of a run that finds everything equal, or only late."""
    command = [sys.executable, "-m", "pipeline.cli.main", "verify", "--patience", "60"]
    process = subprocess.Popen(command, env=dict(environment), stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    said = process.stdout.read()
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode not in (0, 3):
        raise SystemExit(f"verify ended with {process.returncode}:\n{said}")
    print(re.sub(r"^", "  | ", said.strip(), flags=re.MULTILINE))
    return usage.ru_utime + usage.ru_stime, usage.ru_maxrss * 1024
