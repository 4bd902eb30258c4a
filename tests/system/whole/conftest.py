"""The whole pipeline for one test module: `kvlens connect` and `kvlens work` between sockets and tables."""

from __future__ import annotations

import asyncio
import secrets
import time
import urllib.request
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from datetime import datetime, timezone
from functools import cached_property
from pathlib import Path
from typing import Any

import clickhouse_connect
import pytest
import zmq
from clickhouse_connect.driver.client import Client

from connectors.kafka.topics import topic_name
from pipeline.kafka import topics
from pipeline.local.broker.embedded import EmbeddedBroker
from pipeline.local.clickhouse.embedded import EmbeddedStore
from pipeline.recordings.player import EngineSockets
from pipeline.verify.against_log import check_log
from schemas.discovery_settings import Replica
from schemas.settings import ClickHouse, Connector, Kafka, Lmcache, Settings, Worker
from tests.support.committed import wait_committed
from tests.support.inputs.empty_tables import EmptyTables
from tests.support.invariants import broken
from tests.support.patience import PATIENCE
from tests.support.preloaded import preloaded
from tests.support.processes import Started, as_toml
from tests.support.suite.servers import Shared
from tests.system.browser.tabs import chromium, visit

__all__ = ["chromium", "visit"]

PARTITIONS = 3
"""Each has transactions of its own, which cost the broker more than what is in them."""
FINE = ("occupancy_10s", "flow_10s", "stream_health_10s")
TABLES = (
    *FINE,
    "engine_counters",
    "sources",
    *(f"{name}_{per}" for name in ("occupancy", "flow", "stream_health") for per in ("1m", "1h")),
)


@dataclass
class Pipeline:
    """One topic prefix, one group and one database, the processes between, and the engines before them."""

    settings: Settings
    shared: Shared
    directory: Path
    engines: Mapping[str, EngineSockets]
    processes: list[Started] = field(default_factory=list)

    def start(self, command: str) -> Started:
        """Start `kvlens connect` or `kvlens work`."""
        log = self.directory / f"{command}-{len(self.processes)}.log"
        arguments = [command, "--config", "kvlens.toml"]
        self.processes.append(preloaded(self.shared, arguments, log, cwd=self.directory))
        return self.processes[-1]

    def wait_subscribed(self, seconds: float = PATIENCE) -> None:
        """Return when the connector has subscribed to every engine: nothing sent from then on is missed."""
        deadline = time.monotonic() + seconds
        readers = Counter(replica.endpoint for replica in self.settings.replicas)
        while waiting := [
            name for name, engine in self.engines.items() if engine.subscribers < readers[engine.endpoint]
        ]:
            assert time.monotonic() < deadline, (waiting, self._tails())
            time.sleep(0.02)

    def publish(self, replica: str, parts: Sequence[bytes]) -> None:
        """Send one message; waits while the subscriber's queue is full."""
        deadline = time.monotonic() + PATIENCE
        while not self.engines[replica].publish(parts):
            assert time.monotonic() < deadline, (f"nobody takes what {replica} publishes", self._tails())
            time.sleep(0.005)

    def wait_batches(self, expected: Mapping[str, int], seconds: float = PATIENCE) -> None:
        """Return when the tables count so many batches of each replica."""
        self.wait_rows(
            "SELECT replica, sum(batches) FROM {}.stream_health_10s FINAL GROUP BY 1", expected, seconds
        )

    def wait_rows(self, statement: str, expected: Mapping[str, Any], seconds: float = PATIENCE) -> None:
        """Return when a query of two columns gives exactly these pairs."""
        deadline = time.monotonic() + seconds
        while (found := dict(self.query(statement))) != expected:
            assert time.monotonic() < deadline, (found, self._tails())
            time.sleep(0.2)

    def finish(self, connector: Started, worker: Started) -> None:
        """Stop both, the worker when it has applied the connector's last word; the tables are right then."""
        connector.stop()
        kafka = self.settings.kafka
        wait_committed(
            kafka.bootstrap_servers,
            f"{kafka.group}.replica",
            topic_name(kafka, "events"),
            kafka.partitions,
            tell=self._tails,
        )
        worker.stop()
        now = datetime.now(timezone.utc)
        findings = asyncio.run(check_log(self.settings, now, until=None, patience=10.0))
        assert findings.equal, (findings.late, findings.kept[:5])
        assert not broken(self.query, self.database, at_rest=False)

    @cached_property
    def client(self) -> Client:
        """Kept, because a new one asks for all settings of the store first."""
        return clickhouse_connect.get_client(dsn=self.settings.clickhouse.url, autogenerate_session_id=False)

    def query(self, statement: str) -> list[tuple[Any, ...]]:
        """Rows of a statement in which `{}` stands for the database."""
        return [tuple(row) for row in self.client.query(statement.format(self.database)).result_rows]

    def dicts(self, statement: str) -> list[dict[str, Any]]:
        """The same by column name."""
        return list(self.client.query(statement.format(self.database)).named_results())

    def latest_occupancy(self) -> dict[tuple[str, str, int], tuple[int, int, int, str]]:
        """(replica, medium, group) to entries, blocks, tokens and trust at each replica's last window."""
        rows = self.query(
            "SELECT replica, medium, group_idx, sum(entries), sum(blocks), sum(tokens), any(trust) "
            "FROM {0}.occupancy_10s FINAL WHERE (replica, window) IN "
            "(SELECT replica, max(window) FROM {0}.occupancy_10s GROUP BY replica) GROUP BY ALL"
        )
        return {row[:3]: row[3:] for row in rows}

    def metrics(self, section: str) -> str:
        """The Prometheus page of the `connector` or the `worker`."""
        port = getattr(self.settings, section).metrics_port
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=60) as response:
            page: bytes = response.read()
        return page.decode()

    @property
    def database(self) -> str:
        return self.settings.clickhouse.database

    def _tails(self) -> str:
        return "\n".join(f"{process.log.name}:\n{process.said()[-2000:]}" for process in self.processes[-2:])


@pytest.fixture(scope="module")
def new_pipeline(
    broker: EmbeddedBroker,
    store: EmbeddedStore,
    shared: Shared,
    free_port: Callable[[], int],
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Callable[..., Pipeline]]:
    """A function that gives topics, tables, and sockets of the named engines; it kills what still runs.

    `emitters` of an engine, by topic, are replicas instead of it: they share its socket and its sequence.
    """
    tables = EmptyTables(store, shared)
    with ExitStack() as stack:

        def make(
            *names: str,
            emitters: Mapping[str, Mapping[str, str]] | None = None,
            lmcache: Lmcache | None = None,
            **connector: Any,
        ) -> Pipeline:
            # First, so that the processes are gone when they are anybody else's again.
            database = stack.enter_context(tables.lent()).clickhouse.database
            pipeline = stack.enter_context(
                _pipeline(
                    shared,
                    broker,
                    ClickHouse(url=store.url, database=database),
                    free_port,
                    tmp_path_factory,
                    names,
                    emitters or {},
                    lmcache or Lmcache(),
                    connector,
                )
            )
            asyncio.run(topics.apply(pipeline.settings))
            (pipeline.directory / "kvlens.toml").write_text(as_toml(pipeline.settings))
            return pipeline

        yield make


@contextmanager
def _pipeline(
    shared: Shared,
    broker: EmbeddedBroker,
    clickhouse: ClickHouse,
    free_port: Callable[[], int],
    tmp_path_factory: pytest.TempPathFactory,
    names: Sequence[str],
    emitters: Mapping[str, Mapping[str, str]],
    lmcache: Lmcache,
    connector: Mapping[str, Any],
) -> Iterator[Pipeline]:
    name = f"whole_{secrets.token_hex(4)}"
    directory = tmp_path_factory.mktemp(name)
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    engines = {replica: EngineSockets(context, "tcp://127.0.0.1:*", None, 3) for replica in names}
    settings = Settings(
        kafka=Kafka(
            bootstrap_servers=broker.bootstrap_servers, topic_prefix=name, group=name, partitions=PARTITIONS
        ),
        clickhouse=clickhouse,
        connector=Connector(metrics_port=free_port(), **{"drain_seconds": 10.0, **connector}),
        worker=Worker(
            checkpoint_seconds=0.3,
            rollup_seconds=2.0,
            # The captures are hours old: rows carried from then to now would only be in the way.
            idle_carry_seconds=0.001,
            state_directory=str(directory / "faust"),
            metrics_port=free_port(),
            # On a busy machine, too, the tables are right when it has ended.
            stop_seconds=30.0,
        ),
        replicas=tuple(
            Replica(id=replica, model="m", endpoint=engine.endpoint, topic=topic, shared_sequence=bool(topic))
            for name, engine in engines.items()
            for topic, replica in emitters.get(name, {"": name}).items()
        ),
        lmcache=lmcache,
    )
    pipeline = Pipeline(settings, shared, directory, engines)
    try:
        yield pipeline
    finally:
        for process in pipeline.processes:
            process.close()
        context.destroy(0)
        pipeline.client.close()


@pytest.fixture(scope="session")
def all_tables() -> tuple[str, ...]:
    """Names of every table that the pipeline writes."""
    return TABLES
