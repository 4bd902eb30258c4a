"""Connector and worker that start before everything they need say in turn what they wait for, and begin."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from pipeline.local.clickhouse.embedded import EmbeddedStore
from tests.fleet.kafka.brokers import Brokers
from tests.fleet.kafka.installation import RIGHTS, Installation

STEP_SECONDS = 180.0


def test_they_begin_when_the_last_part_is_there(
    tmp_path: Path, free_port: Callable[..., int], say: Callable[[str], None]
) -> None:
    brokers = Brokers(tmp_path / "brokers", free_port, list(RIGHTS))
    store = EmbeddedStore(tmp_path / "store", free_port())
    installation = Installation(brokers, store, tmp_path / "installation")
    try:
        installation.start_engines()
        connector, worker = installation.start("connect", "connect"), installation.start("work", "work")
        for process in (connector, worker):
            process.wait_said("connection refused", seconds=STEP_SECONDS)
        brokers.start()
        for process in (connector, worker):
            process.wait_said("this user may not see the topic sec.events.v1", seconds=STEP_SECONDS)
        installation.allow()
        for process in (connector, worker):
            process.wait_said("does not exist; run `kvlens topics apply`", seconds=STEP_SECONDS)
        installation.make("topics", "apply")
        connector.wait_said("connector_started", seconds=STEP_SECONDS)
        worker.wait_said("ClickHouse at", seconds=STEP_SECONDS)
        store.start()
        worker.wait_said("run `kvlens migrate`", seconds=STEP_SECONDS)
        installation.make("migrate")
        began = time.time()
        took = installation.wait_fresh(began)
        say(f"started first: rows of all replicas {took:.1f} s after the last part was there")
        connector.stop()
        installation.verify()
        worker.stop()
    finally:
        installation.close()
        store.kill()
        brokers.close()
