"""An installation of kvlens on secured brokers: each process is a user of its own, with its rights alone."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import clickhouse_connect
from clickhouse_connect.driver.exceptions import ClickHouseError

from pipeline.generated.topics_file import load_topics
from pipeline.kafka.rights import INDEX, REBUILD, RECORDING, Right, copying, roles
from pipeline.local.clickhouse.embedded import EmbeddedStore
from pipeline.worker.exits import ExitCode
from tests.fleet.kafka.brokers import ADMIN, Brokers
from tests.support.acls import Acls
from tests.support.checkout import ROOT
from tests.support.processes import KVLENS, Started, kvlens, started

REPLICAS = 3
RUN_SECONDS = 600.0
PATIENCE_SECONDS = 180
PREFIX, GROUP = "sec", "secgroup"
MADE = "made"
"""Prefix of topics that nobody but a test of `topics apply` makes."""
COPY = {"topic_prefix": "copied", "group": "copiedgroup"}
"""The installation to which the log is copied."""
_ROLES = {role.command: role.rights for role in roles(load_topics(), topic_prefix=PREFIX, group=GROUP)}
_WORK = ("kvlens work, agent replica", "kvlens work, agent fleet")


def _of_both() -> tuple[Right, ...]:
    """What a worker with both agents needs: Describe stands only where neither agent does more."""
    found = {(right.resource, right.name, right.operation): right for key in _WORK for right in _ROLES[key]}
    used = {name for _, name, operation in found if operation != "Describe"}
    return tuple(right for right in found.values() if right.operation != "Describe" or right.name not in used)


RIGHTS = {
    "apply": _ROLES["kvlens topics apply"],
    "connect": _ROLES["kvlens connect"],
    "work": _of_both(),
    "verify": _ROLES["kvlens verify"],
    "doctor": _ROLES["kvlens doctor"],
    "make": roles(load_topics(), topic_prefix=MADE, group=GROUP)[0].rights,
    "index": _ROLES[INDEX],
    "recording": (*_ROLES[INDEX], *_ROLES[RECORDING]),
    "copy": copying(load_topics(), PREFIX, **COPY).rights,
    "rebuild": _ROLES[REBUILD],
}
"""By user."""


class Kept:
    """A process that is started again when it ends for a reason outside itself, as a supervisor would."""

    def __init__(self, start: Callable[[], Started]) -> None:
        self._start = start
        self.process = start()
        self.ends: list[int] = []
        """Exit codes of those before."""

    def look(self) -> None:
        code = self.process.process.poll()
        if code is not None:
            assert code in (ExitCode.UNAVAILABLE, ExitCode.RESTART), self.process.said()[-3000:]
            self.ends.append(code)
            self.process = self._start()


class Installation:
    """Brokers, a store, simulated engines, and processes of kvlens."""

    def __init__(self, brokers: Brokers, store: EmbeddedStore, directory: Path) -> None:
        self.brokers = brokers
        self.acls = Acls(brokers.login(ADMIN))
        self._store = store
        self._directory = directory
        directory.mkdir(parents=True, exist_ok=True)
        self._config = directory / "kvlens.toml"
        self._processes: list[Started] = []
        self._environment = {
            "KVLENS_KAFKA__TOPIC_PREFIX": PREFIX,
            "KVLENS_KAFKA__GROUP": GROUP,
            "KVLENS_KAFKA__REPLICATION_FACTOR": "3",
            "KVLENS_CLICKHOUSE__URL": store.url,
            "KVLENS_CLICKHOUSE__DATABASE": "secured",
            "KVLENS_CONNECTOR__METRICS_PORT": "0",
            "KVLENS_WORKER__METRICS_PORT": "0",
            "KVLENS_INDEX__PORT": "0",
            "KVLENS_WORKER__STATE_DIRECTORY": str(directory / "worker"),
            "KVLENS_WORKER__CHECKPOINT_SECONDS": "1",
            "KVLENS_WORKER__ROLLUP_SECONDS": "2",
        }

    def prepare(self) -> None:
        """Start the engines, give every user the rights of its role, and make topics and tables."""
        self.start_engines()
        self.allow()
        self.make("topics", "apply")
        self.make("migrate")

    def start_engines(self) -> None:
        simulate = ["simulate", "--replicas", str(REPLICAS), "--base-port", "0", "--metrics-port", "-1"]
        command = [*KVLENS, *simulate, "--write-config", str(self._config)]
        engines = started(command, self._directory / "engines.log", cwd=ROOT)
        self._processes.append(engines)
        engines.wait_said("ready")

    def allow(self) -> None:
        """Give every user the rights of its role."""
        for user, rights in RIGHTS.items():
            self.acls.allow(user, rights)

    def make(self, *command: str) -> None:
        """Run a command that makes topics or tables."""
        code, _, errors = self.run("apply", *command)
        assert code == 0, errors

    def close(self) -> None:
        for process in self._processes:
            process.close()

    def start(self, user: str, *command: str, login: Mapping[str, str] | None = None, **more: str) -> Started:
        log = self._directory / f"{len(self._processes)}-{user}.log"
        process = started(
            [*KVLENS, *command, *self._with_config(command)],
            log,
            cwd=self._directory,
            **{**self._environment, **(login or self.brokers.variables(user)), **more},
        )
        self._processes.append(process)
        return process

    def keep(self, user: str, login: Mapping[str, str]) -> Kept:
        """Start `connect` or `work`, as that user, under somebody who starts it again when it ends."""
        return Kept(lambda: self.start(user, user, login=login))

    def run(
        self, user: str, *command: str, by_certificate: bool = False, **more: str
    ) -> tuple[int, str, str]:
        """Run a command to its end; return exit code, output and errors."""
        login = self.brokers.variables(user, by_certificate=by_certificate)
        return kvlens(
            *command,
            *self._with_config(command),
            cwd=self._directory,
            seconds=RUN_SECONDS,
            **{**self._environment, **login, **more},
        )

    def verify(self) -> str:
        """Assert that the tables are what the log says, beside a worker; return what `verify` said."""
        patience = ("--patience", str(PATIENCE_SECONDS))
        code, said, errors = self.run("verify", "verify", *patience, by_certificate=True)
        assert code == 0, said + errors
        return said

    def newest(self) -> float:
        """Return the epoch seconds of the newest batch that the tables know of every replica; 0 without."""
        table = "secured.stream_health_10s FINAL"
        heard = f"SELECT replica, max(last_batch_at) AS heard FROM {table} GROUP BY replica"
        try:
            with clickhouse_connect.get_client(dsn=self._store.url, autogenerate_session_id=False) as client:
                query = f"SELECT toFloat64(min(heard)), count() FROM ({heard})"
                ((newest, replicas),) = client.query(query).result_rows
        except (ClickHouseError, OSError):
            return 0.0
        return float(newest) if replicas == REPLICAS else 0.0

    def wait_fresh(self, since: float, seconds: float = 240.0, kept: Sequence[Kept] = ()) -> float:
        """Return how long it took until the tables knew a later batch of every replica."""
        began = time.time()
        while self.newest() <= since:
            for one in kept:
                one.look()
            assert time.time() < began + seconds, [one.said()[-1500:] for one in self._processes[-2:]]
            time.sleep(0.1)
        return time.time() - began

    def _with_config(self, command: Sequence[str]) -> list[str]:
        return ["--config", str(self._config)] if self._config.exists() else []
