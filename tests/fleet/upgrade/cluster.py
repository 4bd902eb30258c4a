"""A broker, a store and engines, and processes of whichever version of kvlens on them."""

from __future__ import annotations

import secrets
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
from clickhouse_connect.driver.client import Client
from clickhouse_connect.driver.exceptions import ClickHouseError

from pipeline.local.broker.embedded import EmbeddedBroker
from pipeline.local.clickhouse.embedded import EmbeddedStore
from tests.fleet.upgrade.wheels import Version
from tests.support.checkout import ROOT
from tests.support.processes import KVLENS, Started, started

REPLICAS = 4
FRESH_SECONDS = 300.0
VERIFY_SECONDS = 300.0
PATIENCE_SECONDS = "120"


class VersionsOnOneCluster:
    """All processes share topics, groups and tables, whatever their version."""

    def __init__(self, broker: EmbeddedBroker, store: EmbeddedStore, client: Client, directory: Path) -> None:
        self._client = client
        self._directory = directory
        self._config = directory / "kvlens.toml"
        self._processes: list[Started] = []
        self.database = f"versions_{secrets.token_hex(4)}"
        self._environment = {
            "KVLENS_KAFKA__BOOTSTRAP_SERVERS": broker.bootstrap_servers,
            "KVLENS_KAFKA__TOPIC_PREFIX": self.database,
            "KVLENS_KAFKA__GROUP": self.database,
            "KVLENS_CLICKHOUSE__URL": store.url,
            "KVLENS_CLICKHOUSE__DATABASE": self.database,
            "KVLENS_WORKER__ROLLUP_SECONDS": "2",
        }

    def start_engines(self) -> None:
        simulate = ["simulate", "--replicas", str(REPLICAS), "--hybrid", "1", "--cpu-blocks", "600"]
        ports = ["--base-port", "0", "--metrics-port", "0"]
        command = [*KVLENS, *simulate, *ports, "--write-config", str(self._config)]
        engines = started(command, self._directory / "engines.log", cwd=ROOT)
        self._processes.append(engines)
        engines.wait_said("ready")

    def prepare(self, version: Version) -> None:
        """Do what the documentation asks for before processes of a version start."""
        for command in (("topics", "apply"), ("migrate",)):
            code, said = self._run(version, *command)
            assert code == 0, said

    def connector(self, version: Version) -> Started:
        return self._start(version, "connect")

    def worker(self, version: Version) -> Started:
        """Return when it has partitions: of each agent, if others leave it some."""
        worker = self._start(version, "work")
        worker.wait_said("partitions assigned", times=2, seconds=FRESH_SECONDS)
        return worker

    def wait_fresh(self) -> float:
        """Return how long the tables took to know a batch of every replica that was published after now."""
        since = began = time.time()
        while self._newest() <= since:
            assert time.time() < began + FRESH_SECONDS, [each.said()[-1500:] for each in self._processes]
            time.sleep(0.1)
        return time.time() - began

    def verify(self, version: Version) -> tuple[int, dict[str, Any]]:
        """Return exit code and findings of `verify` of that version, beside the workers."""
        code, said = self._run(version, "verify", "--json", "--patience", PATIENCE_SECONDS)
        assert said.startswith("{"), said
        return code, msgspec.json.decode(said)

    def columns(self) -> set[tuple[str, str]]:
        """Return (table, column) of all tables and views."""
        rows = self._client.query(
            f"SELECT table, name FROM system.columns WHERE database = '{self.database}'"
        ).result_rows
        return {(str(table), str(name)) for table, name in rows}

    def close(self) -> None:
        for process in self._processes:
            process.close()
        self._client.command(f"DROP DATABASE IF EXISTS {self.database} SYNC")

    def _newest(self) -> float:
        table = f"{self.database}.stream_health_10s FINAL"
        heard = f"SELECT replica, max(last_batch_at) AS heard FROM {table} GROUP BY replica"
        query = f"SELECT toFloat64(min(heard)), count() FROM ({heard})"
        try:
            ((newest, replicas),) = self._client.query(query).result_rows
        except ClickHouseError:  # no tables yet
            return 0.0
        return float(newest) if replicas == REPLICAS else 0.0

    def _start(self, version: Version, command: str) -> Started:
        log = self._directory / f"{len(self._processes)}-{command}.log"
        process = started(
            [*version.command, command, "--config", str(self._config)],
            log,
            cwd=self._directory,
            **self._surroundings(version),
        )
        self._processes.append(process)
        return process

    def _run(self, version: Version, *command: str) -> tuple[int, str]:
        log = self._directory / f"{len(self._processes)}-{command[0]}.log"
        process = started(
            [*version.command, *command, "--config", str(self._config)],
            log,
            cwd=self._directory,
            **self._surroundings(version),
        )
        self._processes.append(process)
        return process.process.wait(VERIFY_SECONDS), process.said()

    def _surroundings(self, version: Version) -> Mapping[str, str]:
        return {**self._environment, **version.environment}
