"""A whole kvlens on this machine, as processes: broker, store, workers behind the proxy, connectors."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import clickhouse_connect
import msgspec

from pipeline.clickhouse import migrations
from pipeline.kafka import topics
from pipeline.local.broker.embedded import EmbeddedBroker
from pipeline.local.clickhouse.embedded import EmbeddedStore
from pipeline.local.processes.ports import KeptPorts
from schemas.discovery_settings import Replica
from schemas.settings import ClickHouse, Connector, Kafka, Settings, Worker
from tests.support.processes import as_toml
from tests.system.faults.campaign.surroundings.part import Command, Part
from tests.system.faults.campaign.surroundings.store_proxy import StoreProxy

MOST_WORKERS = 3
SILENT_SECONDS = 15.0
_NAME = "campaign"
_MAIN = ("-m", "pipeline.cli.main")
_SHIFTED = str(Path(__file__).with_name("shifted_clock.py"))
_STORE_SECONDS = 10.0
"""Longest time for one insert: a store that says nothing is noticed within a fault."""
_TAIL_CHARACTERS = 2500


class Installation:
    """Parts that keep running; `workers` has the ports of the proxy beside them."""

    def __init__(self, directory: Path, ports: KeptPorts, replicas: Sequence[Replica]) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self.directory = directory
        broker = EmbeddedBroker(directory / "broker", ports.any(), log=directory / "broker.log")
        store = EmbeddedStore(directory / "store", ports.any(), log=directory / "store.log")
        self.broker, self.store = Part("broker", broker), Part("store", store)
        self.proxy = StoreProxy(store.url)
        self.settings = Settings(
            kafka=Kafka(bootstrap_servers=broker.bootstrap_servers, topic_prefix=_NAME, group=_NAME),
            clickhouse=ClickHouse(url=store.url, database=_NAME, timeout_seconds=_STORE_SECONDS),
            connector=Connector(
                tail_seconds=2.0,
                silent_seconds=SILENT_SECONDS,
                replay_timeout_seconds=2.0,
                scrape_seconds=60.0,
            ),
            worker=Worker(checkpoint_seconds=0.3, rollup_seconds=1.0, idle_carry_seconds=60.0),
            replicas=tuple(replicas),
        )
        self.config = self._config("kvlens", self.settings)
        self.proxy_ports: dict[str, int] = {}
        self.workers = [self._worker(f"worker-{number + 1}", ports.any()) for number in range(MOST_WORKERS)]
        self.connectors = [
            Part(name, Command(name, self._connect(0.0), directory))
            for name in ("connector-1", "connector-2")
        ]

    @property
    def parts(self) -> list[Part]:
        return [self.broker, self.store, *self.workers, *self.connectors]

    @property
    def running_workers(self) -> list[Part]:
        """Those that nobody holds back."""
        return [worker for worker in self.workers if worker.wanted]

    def start(self) -> None:
        """Start everything, with one worker and one connector."""
        self.broker.begin()
        self.store.begin()
        self.make_topics_and_tables()
        self.workers[0].begin()
        self.connectors[0].begin()

    def make_topics_and_tables(self) -> None:
        asyncio.run(topics.apply(self.settings))
        migrations.apply(self.settings)

    def set_clock(self, connector: Part, ahead_seconds: float) -> None:
        """Give a connector that clock from its next start on."""
        assert isinstance(connector.service, Command)
        connector.service.arguments = self._connect(ahead_seconds)

    def query(self, statement: str) -> list[tuple[Any, ...]]:
        """Ask the store itself, not by the proxy."""
        client = clickhouse_connect.get_client(
            dsn=self.settings.clickhouse.url,
            database=_NAME,
            autogenerate_session_id=False,
            connect_timeout=3,
            send_receive_timeout=30,
        )
        try:
            return [tuple(row) for row in client.query(statement).result_rows]
        finally:
            client.close()

    def stop_readers(self) -> None:
        """End connectors, then workers, in order."""
        for part in (*self.connectors, *self.workers):
            part.stop_and_hold()

    def close(self) -> None:
        """Kill everything."""
        for part in reversed(self.parts):
            with suppress(OSError):
                part.close()
        self.proxy.close()

    def tails(self) -> str:
        """Return the last lines of every part."""
        return "\n".join(f"--- {part.name}\n{part.said()[-_TAIL_CHARACTERS:]}" for part in self.parts)

    def _worker(self, name: str, port: int) -> Part:
        self.proxy.listen(port)
        self.proxy_ports[name] = port
        settings = msgspec.structs.replace(
            self.settings,
            clickhouse=msgspec.structs.replace(self.settings.clickhouse, url=f"http://127.0.0.1:{port}"),
            worker=msgspec.structs.replace(
                self.settings.worker, state_directory=str(self.directory / name / "scratch")
            ),
        )
        config = self._config(name, settings)
        return Part(name, Command(name, [*_MAIN, "work", "--config", str(config)], self.directory))

    def _connect(self, ahead_seconds: float) -> list[str]:
        main = (_SHIFTED, str(ahead_seconds)) if ahead_seconds else _MAIN
        return [*main, "connect", "--config", str(self.config)]

    def _config(self, name: str, settings: Settings) -> Path:
        config = self.directory / f"{name}.toml"
        config.write_text(as_toml(settings))
        return config
