"""The embedded broker: finds jars and Java, formats the storage once, starts and stops one JVM."""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
import tempfile
import threading
import uuid
from base64 import urlsafe_b64encode
from collections.abc import Callable
from pathlib import Path

from aiokafka.client import AIOKafkaClient

from connectors.kafka.errors import KAFKA_FAILURES
from pipeline.local.broker.jars import read_lock, verified_jars
from pipeline.local.broker.java import java_version, locate_java
from pipeline.local.broker.properties import properties_text, server_properties
from pipeline.local.processes.child_process import (
    ChildProcess,
    ProcessFailed,
    behind_lifeline,
    lifeline_environment,
)
from pipeline.local.processes.launched import Launched
from pipeline.local.processes.ports import LOOPBACK, free_port, require_free_port

_NAME = "embedded broker"
_START_SECONDS = 60.0
_FORMAT_SECONDS = 60.0
# -XX:TieredStopAtLevel=1: the first compiler only, half the memory and start time of both.
_JVM = ["-Xmx192m", "-Xms64m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
_SERVER = ["-XX:+ExitOnOutOfMemoryError"]
_LOGGING = [
    "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
    "-Dorg.slf4j.simpleLogger.showDateTime=true",
    "-Dorg.slf4j.simpleLogger.dateTimeFormat=yyyy-MM-dd'T'HH:mm:ss.SSSZ",
]
_ADVICE = (
    "see its log; if it cannot run here, use a broker of your own, if its data is damaged, "
    "move the broker directory away"
)


class EmbeddedBroker(Launched):
    """Apache Kafka (KRaft, one node) on loopback; its data in `directory` survive stop, kill and restart.

    The first start downloads about 45 MB, formats the storage, and may raise JarsUnavailable; later ones
    take 2 to 3 s.
    """

    def __init__(
        self,
        directory: Path,
        port: int,
        *,
        log: Path | None = None,
        progress: Callable[[str], None] = lambda line: None,
    ) -> None:
        """`log` defaults to broker.log beside the data; `progress` gets each slow step of the first start."""
        self.directory = Path(directory).resolve()
        self.port = port
        self.bootstrap_servers = f"{LOOPBACK}:{port}"
        self._progress = progress
        process = ChildProcess(_NAME, self.directory, log or self.directory / "broker.log")
        super().__init__(process, start_seconds=_START_SECONDS, advice=_ADVICE)

    @property
    def ready(self) -> bool:
        """Whether it answers metadata requests."""
        return answers(LOOPBACK, self.port)

    def _spawn(self) -> None:
        require_free_port(_NAME, self.port)
        jars = verified_jars(read_lock(), self.directory / "jars", self._progress)
        java = java_command()
        # By environment: 46 paths on the command line would hide everything else in a list of processes.
        environment = {"CLASSPATH": os.pathsep.join(map(str, jars))}
        data = self.directory / "data"
        settings = self.directory / "server.properties"
        # The controller's listener serves this node only, so any port does, a new one each time.
        settings.write_text(properties_text(server_properties(data, LOOPBACK, self.port, free_port())))
        if not (data / "meta.properties").exists():
            self._progress("formatting Kafka's storage")
            _format([*java, *_JVM, "kafka.tools.StorageTool"], environment, settings)
        self._process.spawn([*java, *_JVM, *_SERVER, *_LOGGING, "kafka.Kafka", str(settings)], environment)


def java_command() -> list[str]:
    """Return Java as the beginning of a command."""
    java = locate_java(os.environ)
    # zstd-jni loads a native library; newer runtimes warn about that unless it is allowed.
    native = ["--enable-native-access=ALL-UNNAMED"] if (java_version(java) or 0) >= 22 else []
    return [str(java), *native]


def _format(tool: list[str], environment: dict[str, str], settings: Path) -> None:
    # Kafka's tools would read an id that begins with a dash as an option.
    cluster = urlsafe_b64encode(uuid.uuid4().bytes).rstrip(b"=").decode().replace("-", "_")
    command = [*tool, "format", "--config", str(settings), "--cluster-id", cluster]
    with (
        tempfile.TemporaryFile("w+") as output,
        # Behind a lifeline: an interrupt may come before `Popen` knows the process that it has made.
        subprocess.Popen(
            behind_lifeline(command),
            stdin=subprocess.PIPE,
            stdout=output,
            stderr=output,
            env=lifeline_environment(environment),
        ) as formatting,
    ):
        try:
            code = formatting.wait(_FORMAT_SECONDS)
        except BaseException as error:
            formatting.kill()
            if not isinstance(error, subprocess.TimeoutExpired):
                raise
            reason = f"formatting its storage took over {error.timeout:.0f} s"
            raise ProcessFailed(_NAME, reason, _ADVICE) from error
        if code:
            output.seek(0)
            last = output.read().strip().splitlines()[-1:]
            raise ProcessFailed(_NAME, f"formatting its storage failed: {last}", _ADVICE)


_TIMEOUT_MS = 5000


def answers(host: str, port: int) -> bool:
    """Return whether the node at host:port names itself as a live broker of its cluster.

    Blocks for a few seconds at most. The request has an event loop of its own, so a thread that runs one may
    call this.
    """
    try:
        socket.create_connection((host, port), timeout=1).close()
    except OSError:
        return False
    answer: list[bool] = []
    request = threading.Thread(target=lambda: answer.append(asyncio.run(_has_live_broker(host, port))))
    request.start()
    request.join()
    return answer == [True]


async def _has_live_broker(host: str, port: int) -> bool:
    client = AIOKafkaClient(bootstrap_servers=f"{host}:{port}", request_timeout_ms=_TIMEOUT_MS)
    try:
        await client.bootstrap()
        # Registered but not yet unfenced brokers are left out of the metadata.
        return any(broker.port == port for broker in client.cluster.brokers())
    except KAFKA_FAILURES:
        return False
    finally:
        await client.close()
