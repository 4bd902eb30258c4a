"""`kvlens verify` on a log of two lengths: block operations per second and core, and whether memory grows."""

from __future__ import annotations

import asyncio
import os
import re
import subprocess
import sys
import time
from collections.abc import Mapping

from agent import block_operations, committed, played_on, produce, records_of
from figures import Figures
from payloads import captures
from processes import launched

from pipeline.clickhouse import migrations
from pipeline.kafka import topics
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
