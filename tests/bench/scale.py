"""Large states: memory, checkpoints and their pauses of many full caches, and a killed worker's way back."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

from agent import committed, produce
from figures import Figures
from large_fleet import START, LargeEngine
from large_state import PARTITIONS
from processes import launched, resident_bytes

from pipeline.clickhouse import migrations
from pipeline.kafka import topics
from pipeline.kafka.checkpoints import load
from pipeline.local.broker.embedded import EmbeddedBroker
from pipeline.residency.partition import PartitionState
from schemas.events import EventsRecord
from schemas.settings import ClickHouse, Kafka, Settings

SECONDS = 330
"""Played with a cut in each: as long as it takes until every block was in a base once."""
HOURS = 2.0
"""Of churn: what was lost is remembered for an hour, so only the second one can be flat."""
CHURN_SHARE = 20
"""Churn is played in process with a twentieth of the engines: with all it takes as long as it is."""
REAL_CHURN_SHARE = 50
"""A worker with Kafka plays it with a fiftieth of them, beside those that are killed."""
STEP_SECONDS = 30
"""Of churn in one record of a source when it is played fast."""
AT_ONCE = 20_000
"""Records that are sent together."""
AFTER = START + HOURS * 3600
"""Event time when the churn is over."""
REAL_SECONDS = 60
AWAY_SECONDS = 10

_PREFIX = "bench-scale"


def run(figures: Figures, broker: EmbeddedBroker, store_url: str, *, engines: int, blocks: int) -> None:
    """Measure; needs an empty broker and store."""
    _in_process(figures, "scale", engines, blocks, SECONDS, 0.0)
    _in_process(figures, "scale, churn", max(1, engines // CHURN_SHARE), blocks, 8, HOURS)
    worker = _Worker(figures, broker, store_url)
    some = max(1, engines // REAL_CHURN_SHARE)
    worker.churn([LargeEngine(number, blocks, some) for number in range(some)])
    worker.kill(engines, blocks)


def _in_process(figures: Figures, name: str, engines: int, blocks: int, seconds: int, hours: float) -> None:
    program = str(Path(__file__).with_name("large_state.py"))
    arguments = [sys.executable, program, str(engines), str(blocks), str(seconds), str(hours)]
    with subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        for line in child.stdout:
            what, value, unit = line.rstrip("\n").split("\t")
            figures.add(f"{name}: {what}", float(value), unit)
    if child.returncode:
        raise SystemExit(f"large_state.py ended with {child.returncode}")


def _played(engines: list[LargeEngine], since: float, seconds: int) -> Iterator[EventsRecord]:
    for second in range(1, seconds + 1):
        for engine in engines:
            yield from engine.little_records(engine.exchanged(1.0), since + second)


class _Worker:
    """A worker with a broker and a store of its own topics and tables."""

    def __init__(self, figures: Figures, broker: EmbeddedBroker, store_url: str) -> None:
        self._figures = figures
        self._broker = broker
        self._bootstrap = broker.bootstrap_servers
        self._topic = f"{_PREFIX}.events.v1"
        self._settings = Settings(
            kafka=Kafka(bootstrap_servers=self._bootstrap, topic_prefix=_PREFIX, group=_PREFIX),
            clickhouse=ClickHouse(url=store_url, database="bench_scale"),
        )
        asyncio.run(topics.apply(self._settings))
        migrations.apply(self._settings)
        self._environment = {
            **os.environ,
            "KVLENS_KAFKA__BOOTSTRAP_SERVERS": self._bootstrap,
            "KVLENS_KAFKA__TOPIC_PREFIX": _PREFIX,
            "KVLENS_KAFKA__GROUP": _PREFIX,
            "KVLENS_CLICKHOUSE__URL": store_url,
            "KVLENS_CLICKHOUSE__DATABASE": self._settings.clickhouse.database,
        }

    def churn(self, engines: list[LargeEngine]) -> None:
        """Play hours of churn as fast as it goes; say after each quarter what worker and broker hold."""
        self._produce(record for engine in engines for record in engine.opened())
        steps = int(HOURS * 3600 / STEP_SECONDS)
        with launched(["work"], self._environment) as worker:
            for quarter in range(5):
                if quarter:
                    first, last = (quarter - 1) * steps // 4 + 1, quarter * steps // 4
                    self._produce(_played_fast(engines, first, last))
                self._wait_applied(worker)
                self._wait_applied(worker, f"{_PREFIX}.residency.v1", f"{_PREFIX}.fleet")
                said = f"scale, worker after {quarter / 4 * HOURS:.2f} h of churn"
                self._figures.add(f"{said}: memory", resident_bytes(worker.pid) / 1e6, "MB")
                for agent in ("replica", "fleet"):
                    size = _on_disk(self._broker.directory, f"{_PREFIX}.checkpoints.{agent}.v1")
                    self._figures.add(f"{said}: {agent} checkpoints on the broker's disk", size / 1e6, "MB")

    def kill(self, count: int, blocks: int) -> None:
        """Kill a worker that has caught up, go on with events, and see how long the next one takes."""
        figures = self._figures
        engines = [LargeEngine(number, blocks, count, prefix="killed") for number in range(count)]
        self._produce(record for engine in engines for record in engine.opened())
        self._produce(_played(engines, AFTER, REAL_SECONDS))
        with launched(["work"], self._environment) as worker:
            self._wait_applied(worker)
            figures.add("scale: real worker, memory", resident_bytes(worker.pid) / 1e6, "MB")
            worker.kill()
            worker.wait()
            killed = time.monotonic()
        self._produce(_played(engines, AFTER + REAL_SECONDS, AWAY_SECONDS))
        with launched(["work"], self._environment) as worker:
            self._wait_applied(worker)
            back = time.monotonic() - killed
        figures.add("scale: real worker, blocks resident", sum(engine.blocks for engine in engines), "")
        figures.add("scale: from kill -9 to caught up, replica agent", back, "s")
        began, busy = time.monotonic(), time.process_time()
        size = asyncio.run(_loaded(self._settings))
        figures.add("scale: its checkpoints as they are in Kafka", size / 1e6, "MB")
        figures.add("scale: read from Kafka and restored, replica agent", time.monotonic() - began, "s")
        figures.add("scale: the same, CPU", time.process_time() - busy, "s")

    def _produce(self, records: Iterator[EventsRecord]) -> None:
        while some := list(islice(records, AT_ONCE)):
            asyncio.run(produce(self._bootstrap, self._topic, some, PARTITIONS))

    def _wait_applied(
        self,
        worker: subprocess.Popen[bytes],
        topic: str = f"{_PREFIX}.events.v1",
        group: str = f"{_PREFIX}.replica",
    ) -> None:
        """Wait until a group has committed its topic, but for the markers of transactions at the ends."""
        # Of residency one for each partition of the events topic, at most.
        markers = PARTITIONS**2 if topic != self._topic else 0
        began, reached = time.monotonic(), 0
        while True:
            done, end = asyncio.run(committed(self._bootstrap, topic, group, PARTITIONS))
            if end and done >= end - markers:
                return
            if done > reached:
                began, reached = time.monotonic(), done
            if worker.poll() is not None or time.monotonic() - began > 600:
                raise SystemExit(f"the worker did not go on: {done} of {end} offsets")
            time.sleep(0.2)


def _played_fast(engines: list[LargeEngine], first: int, last: int) -> Iterator[EventsRecord]:
    for step in range(first, last + 1):
        for engine in engines:
            yield engine.large_record(engine.exchanged(STEP_SECONDS), START + step * STEP_SECONDS)


def _on_disk(directory: Path, topic: str) -> int:
    """Return the bytes that the records of a topic take on the broker's disk."""
    return sum(file.stat().st_size for file in directory.rglob(f"{topic}-*/*.log") if file.is_file())


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
