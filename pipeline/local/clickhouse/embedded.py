"""The embedded store as a child process: started, stopped, killed."""

from __future__ import annotations

import sys
from pathlib import Path

from pipeline.local.clickhouse.accounts import DEFAULT_ACCOUNT, Account
from pipeline.local.clickhouse.environment import environment_of
from pipeline.local.processes.child_process import ChildProcess
from pipeline.local.processes.command import page_answers
from pipeline.local.processes.launched import Launched
from pipeline.local.processes.ports import LOOPBACK, require_free_port

_NAME = "embedded store"
_START_SECONDS = 60.0
_STOP_SECONDS = 20.0
_ADVICE = (
    "see its log; if another process has its directory open, stop that, if it cannot run here, "
    "use a ClickHouse server of your own"
)


class EmbeddedStore(Launched):
    """ClickHouse's engine on loopback over HTTP; its data in `directory` survive stop, kill and restart."""

    def __init__(
        self,
        directory: Path,
        port: int,
        *,
        log: Path | None = None,
        writer: Account = DEFAULT_ACCOUNT,
        reader: Account | None = None,
    ) -> None:
        """`log` defaults to store.log beside the data; `reader` is an account that cannot write."""
        self.directory = Path(directory).resolve()
        self.port = port
        self.url = f"http://{LOOPBACK}:{port}"
        self._writer = writer
        self._reader = reader
        process = ChildProcess(_NAME, self.directory, log or self.directory / "store.log")
        super().__init__(process, start_seconds=_START_SECONDS, stop_seconds=_STOP_SECONDS, advice=_ADVICE)

    @property
    def ready(self) -> bool:
        """Whether it answers /ping."""
        return page_answers(f"{self.url}/ping")

    def _spawn(self) -> None:
        require_free_port(_NAME, self.port)
        data = self.directory / "data"
        environment = {
            **environment_of(data),
            "EMBEDDED_STORE_USER": self._writer.name,
            "EMBEDDED_STORE_PASSWORD": self._writer.password,
            "EMBEDDED_STORE_READER": self._reader.name if self._reader else "",
            "EMBEDDED_STORE_READER_PASSWORD": self._reader.password if self._reader else "",
        }
        command = [sys.executable, "-m", "pipeline.local.clickhouse", "--path", str(data)]
        self._process.spawn([*command, "--host", LOOPBACK, "--port", str(self.port)], environment)
