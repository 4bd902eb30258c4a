"""What commands are at when Ctrl-C comes: for the tests of their end, and for the bench that times it."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from pipeline.cli.failures import INTERRUPTED
from pipeline.local.broker.embedded import EmbeddedBroker
from pipeline.local.clickhouse.embedded import EmbeddedStore
from tests.support.checkout import CAPTURES, ROOT
from tests.support.processes import KVLENS, Started, kvlens, started

SOON = 20.0
"""Seconds from a signal to the end, at most.

Commands end within 3 s by Ctrl-C, of which they wait up to 2.5 s for what does not answer
(tests/bench/RESULTS.md has what was measured); connector and worker wait a second longer after SIGTERM. On a
machine that is busy with other tests the rest takes a multiple. What once held an exit, such as a resolver, a
compiler or a query, did so for tens of seconds.
"""
ENGINE = '[{"id": "a", "model": "m", "endpoint": "tcp://127.0.0.1:9"}]'
"""An engine that nobody runs."""
CAPTURE = CAPTURES / "vllm-0.16.0-array.frames.msgpack.gz"
_HANGING_RESOLVER = """
import ctypes, os, signal, socket, threading

def hangs(host, *arguments, **options):
    os.write(2, f"asked for {host}\\n".encode())
    # As in the C library, no signal is handled meanwhile.
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGTERM})
    ctypes.CDLL(None).sleep(600)

socket.getaddrinfo = hangs
"""
Parts = Literal["nobody listens", "the resolver hangs", "its own"]


@dataclass(frozen=True)
class Moment:
    """A command, and something that it says; its Kafka and ClickHouse at that time."""

    name: str
    command: tuple[str, ...]
    reached: str
    code: int
    """With which SIGINT ends it then."""
    parts: Parts
    compiled: bool = False
    """Whether it loads compiled code; otherwise it compiles, which no signal interrupts."""

    def start(self, directory: Path, free_port: Callable[[], int]) -> Started:
        """Start it in an empty directory; return when it has said so."""
        engines = {} if self.command == ("demo",) else {"KVLENS_REPLICAS": ENGINE}
        settings = {
            **engines,
            **_settings_of(self.parts, directory, free_port),
            "NUMBA_CACHE_DIR": "" if self.compiled else str(directory / "nothing"),
            "PYTHONUNBUFFERED": "1",
        }
        process = started([*KVLENS, *self.command], directory / "said.log", cwd=directory, **settings)
        try:
            process.wait_said(self.reached)
        except BaseException:
            process.close()
            raise
        return process


WAITING = tuple(
    Moment(f"{command}, waiting for a broker", (command,), '"waiting"', 0, "nobody listens")
    for command in ("connect", "work", "index")
)
RESOLVING = tuple(
    Moment(
        f"{command}, asking a resolver",
        tuple(command.split()),
        "asked for",
        INTERRUPTED,
        "the resolver hangs",
    )
    for command in ("doctor", "advise", "migrate", "topics list")
)
STARTING = tuple(
    Moment(f"{command}, {words}", (command,), words, INTERRUPTED, "its own")
    for command, several in (
        (
            "demo",
            (
                "starting simulated engines",
                "formatting Kafka's storage",
                "creating topics and tables",
                "starting the worker",
            ),
        ),
        ("up", ("creating topics and tables",)),
    )
    for words in several
)
RUNNING = (
    Moment("serve, without a store", ("serve",), "boards are on", 0, "nobody listens"),
    Moment(
        "simulate, running", ("simulate", "--base-port", "0", "--metrics-port", "-1"), "ready", 0, "its own"
    ),
    Moment(
        "play, waiting for a subscriber",
        ("play", str(CAPTURE), "--endpoint", "tcp://127.0.0.1:*"),
        "waiting for a subscriber",
        0,
        "its own",
    ),
    Moment("demo, running", ("demo",), "Ctrl-C stops it", 0, "its own", compiled=True),
    Moment("up, running", ("up",), "Ctrl-C stops it", 0, "its own", compiled=True),
)


def ended(process: Started, number: int, within: float = SOON) -> tuple[int, float]:
    """Send a signal; return the exit code and after how many seconds it came.

    Raises subprocess.TimeoutExpired.
    """
    process.send(number)
    began = time.monotonic()
    code = process.process.wait(within)
    return code, time.monotonic() - began


def installation(
    broker: EmbeddedBroker, store: EmbeddedStore, directory: Path, free_port: Callable[[], int], **more: str
) -> dict[str, Started]:
    """Start what runs all the time on a broker and a store that are new; return when it is at work."""
    settings = {
        "KVLENS_KAFKA__BOOTSTRAP_SERVERS": broker.bootstrap_servers,
        "KVLENS_CLICKHOUSE__URL": store.url,
        "KVLENS_REPLICAS": ENGINE,
        "KVLENS_INDEX__PORT": "0",
        "KVLENS_PAGE__PORT": str(free_port()),
        **more,
    }
    for command in (("topics", "apply"), ("migrate",)):
        code, _, errors = kvlens(*command, cwd=directory, **settings)
        assert code == 0, errors
    words = {
        "connect": ("connector_started", 1),
        "work": ("partitions assigned", 2),
        "index": ("caught up with the log", 1),
        "serve": ("boards are on", 1),
    }
    processes: dict[str, Started] = {}
    try:
        for command in words:
            log = directory / f"{command}.log"
            processes[command] = started(
                [*KVLENS, command], log, cwd=directory, PYTHONUNBUFFERED="1", **settings
            )
        for command, (said, times) in words.items():
            processes[command].wait_said(said, times=times)
    except BaseException:
        for process in processes.values():
            process.close()
        raise
    return processes


def _unresolved(directory: Path) -> dict[str, str]:
    """Return settings of a process whose resolver does not answer."""
    (directory / "site").mkdir()
    (directory / "site" / "sitecustomize.py").write_text(_HANGING_RESOLVER)
    return {
        "PYTHONPATH": f"{ROOT}{os.pathsep}{directory / 'site'}",
        "KVLENS_KAFKA__BOOTSTRAP_SERVERS": "broker.invalid:9092",
        "KVLENS_CLICKHOUSE__URL": "http://store.invalid:8123",
    }


def _settings_of(parts: Parts, directory: Path, free_port: Callable[[], int]) -> Mapping[str, str]:
    if parts == "its own":
        return {}
    if parts == "the resolver hangs":
        return _unresolved(directory)
    return nobody_listens(free_port)


def nobody_listens(free_port: Callable[[], int]) -> dict[str, str]:
    """Return settings with Kafka and ClickHouse where nobody listens, and pages on ports of their own."""
    return {
        "KVLENS_KAFKA__BOOTSTRAP_SERVERS": f"127.0.0.1:{free_port()}",
        "KVLENS_CLICKHOUSE__URL": f"http://127.0.0.1:{free_port()}",
        "KVLENS_PAGE__PORT": str(free_port()),
        "KVLENS_INDEX__PORT": "0",
        "KVLENS_CONNECTOR__METRICS_PORT": str(free_port()),
        "KVLENS_WORKER__METRICS_PORT": str(free_port()),
    }
