"""Everything `kvlens up` runs for one data directory: broker, store, worker, connector, page, index."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from connectors.process.addresses import bracketed, shown
from pipeline.clickhouse import migrations
from pipeline.kafka import topics
from pipeline.local.directory import DataDirectory
from pipeline.local.processes.command import CommandProcess, page_answers
from pipeline.local.processes.ports import LOOPBACK
from pipeline.local.processes.supervisor import Supervisor
from pipeline.local.run_file import write_run_file
from pipeline.settings.loading import DEFAULT, LoadedSettings, load, variable_of
from schemas.settings import Settings

if TYPE_CHECKING:
    from pipeline.local.broker.embedded import EmbeddedBroker
    from pipeline.local.clickhouse.embedded import EmbeddedStore

DEFAULT_BROKER_PORT = 9092
DEFAULT_STORE_PORT = 8123
_START_SECONDS = 180.0
"""Longest time without work at a start. A busy machine compiles for minutes."""
_DRAIN_SECONDS = 0.5
"""A connector takes up to 0.9 s more to end, and the supervisor kills what has not ended after 1.5 s. One
that is killed can neither count nor log what Kafka did not accept."""


class Steps(Protocol):
    """Where starting parts report their progress."""

    def step(self, text: str) -> None:
        """Report what goes on until the next step; what changes within a step follows a colon."""

    def tell(self, line: str) -> None:
        """Report what has happened, in a line that stays."""


class Stack:
    """Starts processes under a supervisor; a broker or store whose address is configured is not embedded.

    `settings` are the effective ones, with the addresses of the embedded broker and store.
    """

    def __init__(
        self,
        loaded: LoadedSettings,
        config: Path | None,
        directory: DataDirectory,
        supervisor: Supervisor,
        steps: Steps,
        *,
        on_purpose: Mapping[str, str] | None = None,
    ) -> None:
        """`config` is the file `loaded` came from, for the processes; `on_purpose` is for the doctor."""
        self.settings = loaded.settings
        self.urls: dict[str, str] = {}
        self._loaded = loaded
        self._config = config
        self._directory = directory
        self._supervisor = supervisor
        self._steps = steps
        self._on_purpose = on_purpose
        self._environment: dict[str, str] = {}

    def start(self) -> None:
        """Start everything in parallel, create missing topics and tables; wait for all but the index.

        The worker starts before what it waits for: at the first start it compiles for longest of all. Raises
        ProcessFailed, DirectoryInUse, PortInUse, JarsUnavailable, KafkaUnavailable, StoreUnavailable.
        """
        broker, store = self._broker(), self._store()
        # From here on the settings are those that the processes will read.
        self.settings = self._read(self._environment)
        if store:
            self._supervisor.launch("store", store, storage=True)
        worker = self._launch("worker", "work")
        if broker:
            self._steps.step("starting Kafka")
            self._supervisor.launch("broker", broker, storage=True)
        connector = self._launch("connector", "connect")
        # Before the page, which reads it.
        write_run_file(self._directory.path, self._config, self._environment, self._on_purpose)
        page = self._launch_server("page", "serve", "livez")
        if broker:
            self._steps.step("starting Kafka")  # again, after the broker's own steps
            broker.wait_ready()
            self._steps.tell(f"Kafka listens on {broker.bootstrap_servers}")
        if store:
            self._steps.step("starting ClickHouse")
            store.wait_ready()
            self._steps.tell(f"ClickHouse listens on {store.url}")
        self._steps.step("creating topics and tables")
        asyncio.run(topics.apply(self.settings))
        migrations.apply(self.settings)
        self._steps.tell("topics and tables are in place")
        # Most of the wait is for compilation, which an installation needs once.
        for name, process, doing in (
            ("worker", worker, "starting the worker, slow only the first time"),
            ("connector", connector, "starting the connector"),
            ("page", page, "starting the page"),
        ):
            self._steps.step(doing)
            process.wait_ready()
            self._steps.tell(f"boards are on {self.urls['page']}" if name == "page" else f"{name} is ready")
        # Last, as nothing waits for it, and it would take processor time from what the user waits for.
        self._launch_server("index", "index", "readyz")

    def _broker(self) -> EmbeddedBroker | None:
        """Return the embedded broker, which has a port but does not run yet; None where one is configured."""
        if self._loaded.origin("kafka", "bootstrap_servers") != DEFAULT:
            self.urls["kafka"] = self.settings.kafka.bootstrap_servers
            return None
        from pipeline.local.broker.embedded import EmbeddedBroker

        port = self._supervisor.ports.preferred(DEFAULT_BROKER_PORT)
        log = self._directory.logs / "broker.log"
        broker = EmbeddedBroker(self._directory.broker, port, log=log, progress=self._steps.step)
        self._environment[variable_of("kafka", "bootstrap_servers")] = broker.bootstrap_servers
        self.urls["kafka"] = broker.bootstrap_servers
        return broker

    def _store(self) -> EmbeddedStore | None:
        """Return the embedded store in the same way."""
        given = self.settings.clickhouse
        if self._loaded.origin("clickhouse", "url") != DEFAULT:
            self.urls["clickhouse"] = shown(given.url)
            return None
        from pipeline.clickhouse.login import password_of
        from pipeline.local.clickhouse.accounts import Account
        from pipeline.local.clickhouse.embedded import EmbeddedStore

        store = EmbeddedStore(
            self._directory.store,
            self._supervisor.ports.preferred(DEFAULT_STORE_PORT),
            log=self._directory.logs / "store.log",
            writer=Account(given.username, password_of(given), readonly=False),
        )
        self._environment[variable_of("clickhouse", "url")] = store.url
        self.urls["clickhouse"] = store.url
        self.urls["sql"] = f"{store.url}/play"
        return store

    def _launch(self, name: str, command: str) -> CommandProcess:
        """Launch a process; `name` is also that of its section in the settings."""
        environment = dict(self._environment)
        port = getattr(self.settings, name).metrics_port
        if not port:
            # Its health page says when it is ready.
            port = self._supervisor.ports.any()
            environment[variable_of(name, "metrics_port")] = str(port)
        if name == "connector":
            drain = min(self.settings.connector.drain_seconds, _DRAIN_SECONDS)
            environment[variable_of(name, "drain_seconds")] = str(drain)
        if name == "worker" and not self.settings.worker.state_directory:
            scratch = self._directory.path / name / "scratch"
            environment[variable_of("worker", "state_directory")] = str(scratch)
        self.urls[f"{name}_metrics"] = f"http://{LOOPBACK}:{port}/metrics"
        arguments = [command, *(("--config", str(self._config)) if self._config else ())]
        return self._launch_command(name, arguments, environment, f"http://{LOOPBACK}:{port}/readyz")

    def _launch_server(self, name: str, command: str, ready: str) -> CommandProcess:
        """Launch what reads the run file and answers, on the configured port unless that is taken.

        `name` is also that of its section in the settings.
        """
        given, ports = getattr(self.settings, name), self._supervisor.ports
        port = ports.preferred(given.port) if given.port else ports.any()
        environment = {**self._environment, variable_of(name, "port"): str(port)}
        url = self.urls[name] = f"http://{bracketed(given.host)}:{port}/"
        arguments = [command, "--data-dir", str(self._directory.path)]
        return self._launch_command(name, arguments, environment, f"{url}{ready}")

    def _launch_command(
        self, name: str, arguments: list[str], environment: Mapping[str, str], ready: str
    ) -> CommandProcess:
        process = CommandProcess(
            name,
            arguments,
            self._directory.path / name,
            self._directory.logs,
            environment=environment,
            ready=lambda: page_answers(ready),
            start_seconds=_START_SECONDS,
        )
        self._supervisor.launch(name, process)
        return process

    def _read(self, environment: Mapping[str, str]) -> Settings:
        document = None if self._config is None else self._config.read_text("utf-8")
        merged = {**os.environ, **environment}
        return load(document, str(self._config), merged, lambda name: Path(name).read_text("utf-8")).settings
