"""Large states: memory, checkpoints and their pauses of many full caches, and a killed worker's way back."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from agent import committed, produce
from figures import Figures
from large_fleet import START, LargeEngine
from large_state import PARTITIONS
from processes import launched

from pipeline.clickhouse import migrations
from pipeline.kafka import topics
from pipeline.residency.partition import PartitionState
from pipeline.worker.checkpoint.log import load
from schemas.events import EventsRecord
from schemas.settings import ClickHouse, Kafka, Settings, Worker

SECONDS = 330
"""Played with a cut in each: as long as it takes until every block was in a base once."""
HOURS = 1.0
REAL_SHARE = 10
"""The worker with Kafka has a tenth of the engines."""
REAL_SECONDS = 60
AWAY_SECONDS = 10

_PREFIX = "bench-scale"


def run(figures: Figures, bootstrap: str, store_url: str, *, engines: int, blocks: int) -> None:
    """Measure; needs an empty broker and store."""
    program = str(Path(__file__).with_name("large_state.py"))
    arguments = [sys.executable, program, str(engines), str(blocks), str(SECONDS), str(HOURS)]
    with subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        for line in child.stdout:
            name, value, unit = line.rstrip("\n").split("\t")
            figures.add(f"scale: {name}", float(value), unit)
    if child.returncode:
        raise SystemExit(f"large_state.py ended with {child.returncode}")
    _killed(figures, bootstrap, store_url, max(1, engines // REAL_SHARE), blocks)


def _played(engines: list[LargeEngine], since: float, seconds: int) -> Iterator[EventsRecord]:
    for second in range(1, seconds + 1):
        for engine in engines:
            yield from engine.little_records(engine.exchanged(1.0), since + second)


def _killed(figures: Figures, bootstrap: str, store_url: str, count: int, blocks: int) -> None:
    """Kill a worker that has caught up, go on with events, and see how long the next one takes."""
    settings = Settings(
        kafka=Kafka(bootstrap_servers=bootstrap, topic_prefix=_PREFIX, group=_PREFIX),
        clickhouse=ClickHouse(url=store_url, database="bench_scale"),
        worker=Worker(max_clock_behind_seconds=1e9, max_clock_ahead_seconds=1e9),
    )
    asyncio.run(topics.apply(settings))
    migrations.apply(settings)
    environment = {
        **os.environ,
        "KVLENS_KAFKA__BOOTSTRAP_SERVERS": bootstrap,
        "KVLENS_KAFKA__TOPIC_PREFIX": _PREFIX,
        "KVLENS_KAFKA__GROUP": _PREFIX,
        "KVLENS_CLICKHOUSE__URL": store_url,
        "KVLENS_CLICKHOUSE__DATABASE": settings.clickhouse.database,
        "KVLENS_WORKER__MAX_CLOCK_BEHIND_SECONDS": "1e9",
        "KVLENS_WORKER__MAX_CLOCK_AHEAD_SECONDS": "1e9",
    }
    topic = f"{_PREFIX}.events.v1"
    engines = [LargeEngine(number, blocks, count) for number in range(count)]
    records = [record for engine in engines for record in engine.opened()]
    asyncio.run(produce(bootstrap, topic, [*records, *_played(engines, START, REAL_SECONDS)], PARTITIONS))
    with launched(["work"], environment) as worker:
        _wait_applied(bootstrap, topic, worker)
        worker.kill()
        worker.wait()
        killed = time.monotonic()
    more = [*_played(engines, START + REAL_SECONDS, AWAY_SECONDS)]
    asyncio.run(produce(bootstrap, topic, more, PARTITIONS))
    with launched(["work"], environment) as worker:
        _wait_applied(bootstrap, topic, worker)
        back = time.monotonic() - killed
    figures.add("scale: real worker, blocks resident", sum(engine.blocks for engine in engines), "")
    figures.add("scale: from kill -9 to caught up, replica agent", back, "s")
    began, busy = time.monotonic(), time.process_time()
    size = asyncio.run(_loaded(settings))
    figures.add("scale: its checkpoints as they are in Kafka", size / 1e6, "MB")
    figures.add("scale: read from Kafka and restored, replica agent", time.monotonic() - began, "s")
    figures.add("scale: the same, CPU", time.process_time() - busy, "s")


def _wait_applied(bootstrap: str, topic: str, worker: subprocess.Popen[bytes]) -> None:
    began = time.monotonic()
    while True:
        done, end = asyncio.run(committed(bootstrap, topic, f"{_PREFIX}.replica", PARTITIONS))
        if done >= end > 0:
            return
        if worker.poll() is not None or time.monotonic() - began > 600:
            raise SystemExit(f"the worker did not finish: {done} of {end} offsets")
        time.sleep(0.2)


async def _loaded(settings: Settings) -> int:
    """Load the state as a worker does; return the bytes of it that count."""
    size = 0
    async for number, loaded in load(
        settings.kafka,
        topic=f"{_PREFIX}.events.v1",
        checkpoints=f"{_PREFIX}.checkpoints.replica.v1",
        partitions=range(PARTITIONS),
    ):
        size += sum(len(value) for value in loaded.latest.values())
        PartitionState.restore(number, settings.worker, shards=PARTITIONS, latest=loaded.latest)
    return size
