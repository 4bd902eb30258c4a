"""Broker and store away: what they say meanwhile can be read, and rows are fresh soon after they are back.

TEST_AWAY_SECONDS=240 runs it as long as a real outage.
"""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import clickhouse_connect
import pytest
from clickhouse_connect.driver.exceptions import ClickHouseError

from pipeline.local.broker.embedded import EmbeddedBroker
from pipeline.local.clickhouse.embedded import EmbeddedStore
from tests.support.checkout import ROOT
from tests.support.processes import KVLENS, started

pytestmark = pytest.mark.night

FRESH_SECONDS = 240.0
"""On a machine of its own it is below 10, as the printed figures say; tests share theirs."""
AWAY_SECONDS = float(os.environ.get("TEST_AWAY_SECONDS", "0"))
LINES_A_MINUTE = 6
NEWEST = """
SELECT toFloat64(min(heard)), count() FROM
(SELECT replica, max(last_batch_at) AS heard FROM kvlens.stream_health_10s FINAL GROUP BY replica)
"""
REPLICAS = 2


class Fleet:
    """Simulated engines, `kvlens up` with a broker and a store of its own to hurt, and its logs."""

    def __init__(self, directory: Path, free_port: Callable[[], int]) -> None:
        self.broker = EmbeddedBroker(directory / "broker", free_port())
        self.store = EmbeddedStore(directory / "store", free_port())
        self.broker.start()
        self.store.start()
        replicas, config = directory / "replicas.toml", directory / "kvlens.toml"
        simulate = ["simulate", "--replicas", str(REPLICAS), "--base-port", "0", "--metrics-port", "-1"]
        self.engines = started(
            [*KVLENS, *simulate, "--write-config", str(replicas)], directory / "engines.log", cwd=ROOT
        )
        self.engines.wait_said("ready")
        config.write_text(
            f'[kafka]\nbootstrap_servers = "{self.broker.bootstrap_servers}"\n'
            f'[clickhouse]\nurl = "{self.store.url}"\n[page]\nport = {free_port()}\n{replicas.read_text()}'
        )
        arguments = ["up", "--config", str(config), "--data-dir", str(directory / "data")]
        self.up = started([*KVLENS, *arguments], directory / "up.log", cwd=directory, PYTHONUNBUFFERED="1")
        self._logs = directory / "data" / "logs"

    def close(self) -> None:
        self.up.close()
        self.engines.close()
        self.broker.kill()
        self.store.kill()

    def wait_fresh(self, since: float, seconds: float) -> float:
        """Return how long it took until the tables knew a later batch of every replica."""
        began = time.time()
        while self._newest() <= since:
            assert self.up.alive, self.up.said()[-3000:]
            assert time.time() < began + seconds, (self.up.said()[-1500:], self._said("worker")[-20:])
            time.sleep(0.1)
        return time.time() - began

    def away(self, *parts: EmbeddedBroker | EmbeddedStore, seconds: float) -> tuple[float, dict[str, Any]]:
        """Kill parts for so long; return how long fresh rows took, and what each process said meanwhile."""
        said = {name: len(self._said(name)) for name in ("worker", "connector")}
        for part in parts:
            part.kill()
        time.sleep(seconds)
        during = {name: self._said(name)[before:] for name, before in said.items()}
        starting = [threading.Thread(target=part.start) for part in parts]
        for thread in starting:
            thread.start()
        for thread in starting:
            thread.join()
        return self.wait_fresh(time.time(), FRESH_SECONDS), during

    def _newest(self) -> float:
        try:
            with clickhouse_connect.get_client(dsn=self.store.url, autogenerate_session_id=False) as client:
                ((newest, replicas),) = client.query(NEWEST).result_rows
        except (ClickHouseError, OSError):
            return 0.0
        return float(newest) if replicas == REPLICAS else 0.0

    def _said(self, name: str) -> list[str]:
        return (self._logs / f"{name}.log").read_text().splitlines()


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory, free_port: Callable[[], int]) -> Iterator[Fleet]:
    fleet = Fleet(tmp_path_factory.mktemp("fleet"), free_port)
    try:
        fleet.up.wait_said("running; Ctrl-C stops it")
        fleet.wait_fresh(0.0, 60.0)
        yield fleet
    finally:
        fleet.close()


@pytest.mark.parametrize(
    ("parts", "seconds", "what"),
    [
        # Longer than a transaction is waited for: the worker ends, and its successor waits for the broker.
        (("broker",), 35.0, ("Kafka", "aiokafka")),
        (("store",), 5.0, ("ClickHouse",)),
        (("broker", "store"), 10.0, ("Kafka", "aiokafka", "ClickHouse")),
    ],
)
def test_rows_are_fresh_soon_after_the_last_part_is_back(
    fleet: Fleet, parts: tuple[str, ...], seconds: float, what: tuple[str, ...]
) -> None:
    seconds = AWAY_SECONDS or seconds
    took, said = fleet.away(*(getattr(fleet, part) for part in parts), seconds=seconds)
    print(f"{parts} away for {seconds:.0f} s: fresh after {took:.1f} s")  # noqa: T201 - figures are printed
    for name, lines in said.items():
        print(f"{name}: {len(lines)} lines")  # noqa: T201
        # A worker that ended in the middle of a transaction has a successor, which says what it waits for.
        lives = 1 + sum("worker ends" in line for line in lines)
        assert len(lines) <= lives * LINES_A_MINUTE * (1 + seconds // 60), "\n".join(lines)
    first = next(line for line in map(json.loads, said["worker"]) if line["level"] != "info")
    assert any(word in json.dumps(first) for word in what), first
