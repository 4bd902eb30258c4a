"""The embedded store as a child process: started, stopped, killed."""

from __future__ import annotations

import sys
from pathlib import Path
from urllib.error import URLError
from urllib.request import ProxyHandler, build_opener

from pipeline.local.clickhouse.accounts import DEFAULT_ACCOUNT, Account
from pipeline.local.clickhouse.environment import environment_of
from pipeline.local.processes.child_process import ChildProcess
from pipeline.local.processes.ports import LOOPBACK, require_free_port

_NAME = "embedded store"
_START_SECONDS = 60.0
_STOP_SECONDS = 20.0
_ADVICE = (
    "see its log; if another process has its directory open, stop that, if it cannot run here, "
    "use a ClickHouse server of your own"
)


class EmbeddedStore:
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
        self._process = ChildProcess(_NAME, self.directory, log or self.directory / "store.log")

    @property
    def running(self) -> bool:
        return self._process.running

    @property
    def log(self) -> Path:
        return self._process.log

    @property
    def ready(self) -> bool:
        """Whether it answers /ping."""
        # No proxy of the environment stands between a process and its own loopback.
        try:
            with build_opener(ProxyHandler({})).open(f"{self.url}/ping", timeout=2) as answer:
                return bool(answer.status == 200)
        except (URLError, OSError):
            return False

    def start(self) -> None:
        """Block until it is ready, about 1 s; raises DirectoryInUse, PortInUse, ProcessFailed."""
        self.launch()
        self.wait_ready()

    def launch(self) -> None:
        """Begin to start; raises DirectoryInUse, PortInUse."""
        self._process.claim()
        try:
            self._spawn()
        except BaseException:
            self._process.kill()
            raise

    def wait_ready(self) -> None:
        """Block until it is ready; raises ProcessFailed when it ends before, or takes too long."""
        try:
            self._process.wait_ready(lambda: self.ready, _START_SECONDS, _ADVICE)
        except BaseException:
            self._process.kill()
            raise

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

    def stop(self, seconds: float = _STOP_SECONDS) -> None:
        """Let requests end and close the data, within that time, or else kill."""
        self._process.stop(seconds)

    def kill(self) -> None:
        """SIGKILL, as a crash."""
        self._process.kill()

    def signal(self, number: int) -> None:
        """Send a signal to the process, such as SIGSTOP."""
        self._process.signal(number)
