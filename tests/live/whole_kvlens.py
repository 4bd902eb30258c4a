"""A broker, a store, `kvlens connect`, `work` and `index`: all that is between engines and tables."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import clickhouse_connect

from pipeline.clickhouse import migrations
from pipeline.kafka import topics
from pipeline.local.broker.embedded import EmbeddedBroker
from pipeline.local.clickhouse.embedded import EmbeddedStore
from pipeline.verify.against_log import check_log
from pipeline.verify.findings import Findings
from schemas.discovery_settings import Replica
from schemas.settings import ClickHouse, Connector, Index, Kafka, Settings, Worker
from tests.support.index_service import IndexProcess, index_process
from tests.support.processes import KVLENS, Started, as_toml, started

CHECKPOINT_SECONDS = 0.5
SCRAPE_SECONDS = 1.0
SETTLE_SECONDS = 60.0
"""For the connector to listen, and for the index to have read the log; each takes seconds."""
ROLLUP_SECONDS = 30.0
"""For the minutes and hours of each table to catch up before they are recounted."""


class WholeKvlens:
    """Servers and processes in a directory of their own; a context that ends them all."""

    def __init__(self, directory: Path, free_port: Callable[[], int], replicas: Iterable[Replica]) -> None:
        name = f"live_{secrets.token_hex(4)}"
        self._directory = directory
        self._stack = ExitStack()
        self._broker = EmbeddedBroker(directory / "broker", free_port())
        self._store = EmbeddedStore(directory / "store", free_port())
        self.settings = Settings(
            kafka=Kafka(bootstrap_servers=self._broker.bootstrap_servers, topic_prefix=name, group=name),
            clickhouse=ClickHouse(url=self._store.url, database=name),
            connector=Connector(metrics_port=free_port(), scrape_seconds=SCRAPE_SECONDS),
            worker=Worker(
                checkpoint_seconds=CHECKPOINT_SECONDS,
                state_directory=str(directory / "faust"),
                metrics_port=free_port(),
            ),
            index=Index(port=free_port()),
            replicas=tuple(replicas),
        )

    def __enter__(self) -> WholeKvlens:
        with ExitStack() as stack:
            for server in (self._broker, self._store):
                server.start()
                stack.callback(server.stop)
            asyncio.run(topics.apply(self.settings))
            migrations.apply(self.settings)
            (self._directory / "kvlens.toml").write_text(as_toml(self.settings))
            self._worker = self._started("work", stack)
            self._connector = self._started("connect", stack)
            self.index: IndexProcess = index_process(self.settings, self._directory)
            stack.callback(self.index.close)
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def wait_ready(self) -> None:
        """Return when the index answers."""
        deadline = time.monotonic() + SETTLE_SECONDS
        while self.index.ask("readyz")[0] != 200:
            assert time.monotonic() < deadline, self.index.said()[-2_000:]
            time.sleep(0.2)

    def rows(self, statement: str) -> list[dict[str, Any]]:
        """Return the rows of a statement in which `{0}` stands for the database."""
        settings = self.settings.clickhouse
        client = clickhouse_connect.get_client(dsn=settings.url, autogenerate_session_id=False)
        rows = list(client.query(statement.format(settings.database)).named_results())
        client.close()
        return rows

    def recounted(self) -> Findings:
        """Stop the connector; return what a recount of the whole log says of the tables."""
        self._connector.stop()
        now = datetime.now(timezone.utc)
        findings = asyncio.run(check_log(self.settings, now, until=None, patience=ROLLUP_SECONDS))
        self._worker.stop()
        return findings

    def _started(self, command: str, stack: ExitStack) -> Started:
        arguments = [*KVLENS, command, "--config", "kvlens.toml"]
        process = started(arguments, self._directory / f"{command}.log", cwd=self._directory)
        stack.callback(process.close)
        return process
