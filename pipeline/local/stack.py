"""Everything `kvlens up` runs for one data directory: broker and store unless given, worker, connector."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping
from pathlib import Path

from connectors.process.addresses import shown
from pipeline.clickhouse import migrations
from pipeline.kafka import topics
from pipeline.local.directory import DataDirectory
from pipeline.local.processes.command import CommandProcess, page_answers
from pipeline.local.processes.ports import LOOPBACK
from pipeline.local.processes.supervisor import Supervisor
from pipeline.local.run_file import write_run_file
from pipeline.local.steps import Steps
from pipeline.settings.loading import DEFAULT, LoadedSettings, load, variable_of
from schemas.settings import Settings

DEFAULT_BROKER_PORT = 9092
DEFAULT_STORE_PORT = 8123
_START_SECONDS = 60.0


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

    def start_storage(self) -> None:
        """Start broker and store; create the topics and tables that are missing."""
        if self._loaded.origin("kafka", "bootstrap_servers") == DEFAULT:
            self._start_broker()
        if self._loaded.origin("clickhouse", "url") == DEFAULT:
            self._start_store()
        # From here on the settings are those that the processes will read.
        self.settings = self._read(self._environment)
        write_run_file(self._directory.path, self._config, self._environment, self._on_purpose)
        self.urls |= {
            "kafka": self.settings.kafka.bootstrap_servers,
            "clickhouse": shown(self.settings.clickhouse.url),
        }
        self._steps.step("creating topics and tables")
        asyncio.run(topics.apply(self.settings))
        migrations.apply(self.settings)
        self._steps.tell("topics and tables are in place")

    def start_worker(self) -> None:
        """Start `kvlens work`."""
        self._start_process("worker", "work")

    def start_connector(self) -> None:
        """Start `kvlens connect`."""
        self._start_process("connector", "connect")

    def start_page(self) -> None:
        """Start `kvlens serve`, on the configured port unless that is taken."""
        host, port = self.settings.page.host, self._supervisor.ports.preferred(self.settings.page.port)
        environment = {**self._environment, variable_of("page", "port"): str(port)}
        self._steps.step("starting the page")
        url = f"http://{host}:{port}/"
        process = CommandProcess(
            "page",
            self._arguments("serve"),
            self._directory.path / "page",
            self._directory.logs,
            environment=environment,
            ready=lambda: page_answers(f"{url}livez"),
            start_seconds=_START_SECONDS,
        )
        self._supervisor.start("page", process)
        self.urls["page"] = url
        self._steps.tell(f"boards are on {url}")

    def _start_broker(self) -> None:
        from pipeline.local.broker.embedded import EmbeddedBroker

        self._steps.step("starting Kafka")
        port = self._supervisor.ports.preferred(DEFAULT_BROKER_PORT)
        log = self._directory.logs / "broker.log"
        broker = EmbeddedBroker(self._directory.broker, port, log=log, progress=self._steps.step)
        self._supervisor.start("broker", broker, storage=True)
        self._environment[variable_of("kafka", "bootstrap_servers")] = broker.bootstrap_servers
        self._steps.tell(f"Kafka listens on {broker.bootstrap_servers}")

    def _start_store(self) -> None:
        from pipeline.local.clickhouse.accounts import Account
        from pipeline.local.clickhouse.embedded import EmbeddedStore

        self._steps.step("starting ClickHouse")
        given = self.settings.clickhouse
        store = EmbeddedStore(
            self._directory.store,
            self._supervisor.ports.preferred(DEFAULT_STORE_PORT),
            log=self._directory.logs / "store.log",
            writer=Account(given.username, given.password, readonly=False),
        )
        self._supervisor.start("store", store, storage=True)
        self._environment[variable_of("clickhouse", "url")] = store.url
        self._steps.tell(f"ClickHouse listens on {store.url}")

    def _start_process(self, name: str, command: str) -> None:
        """`name` is also that of the process's section in the settings."""
        # Compiling is most of what there is to wait for, and done once in an installation.
        self._steps.step(f"starting the {name}" + ", slow only the first time" * (name == "worker"))
        environment = dict(self._environment)
        port = getattr(self.settings, name).metrics_port
        if not port:
            # Its health page tells when it is ready.
            port = self._supervisor.ports.any()
            environment[variable_of(name, "metrics_port")] = str(port)
        own = self._directory.path / name
        if name == "worker" and not self.settings.worker.state_directory:
            environment[variable_of("worker", "state_directory")] = str(own / "scratch")
        process = CommandProcess(
            name,
            self._arguments(command),
            own,
            self._directory.logs,
            environment=environment,
            ready=lambda: page_answers(f"http://{LOOPBACK}:{port}/readyz"),
            start_seconds=_START_SECONDS,
        )
        self._supervisor.start(name, process)
        self.urls[f"{name}_metrics"] = f"http://{LOOPBACK}:{port}/metrics"
        self._steps.tell(f"{name} is ready")

    def _arguments(self, command: str) -> list[str]:
        return [command, *(("--config", str(self._config)) if self._config else ())]

    def _read(self, environment: Mapping[str, str]) -> Settings:
        document = None if self._config is None else self._config.read_text("utf-8")
        merged = {**os.environ, **environment}
        return load(document, str(self._config), merged, lambda name: Path(name).read_text("utf-8")).settings
