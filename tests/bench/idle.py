"""One connector with 500 sources: what they cost when nothing happens, and under light traffic."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from connector import metric
from figures import Figures
from processes import cpu_seconds, launched, resident_bytes

from pipeline.kafka import topics
from pipeline.local.processes.ports import free_port
from schemas.settings import Kafka, Settings

SOURCES = 500
SECONDS = 20.0
BATCHES_PER_SECOND = 1000
SETTLE_SECONDS = 15.0
"""First asks for a replay, and the beginning of the first tail asks."""


class EngineProcess:
    """The process of `idle_engines.py`."""

    def __init__(self, count: int) -> None:
        script = str(Path(__file__).with_name("idle_engines.py"))
        self._process = subprocess.Popen(
            [sys.executable, script, str(count)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self.endpoints: list[tuple[str, str]] = json.loads(self._line())

    def publish(self, per_second: float, seconds: float) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(f"{per_second} {seconds}\n")
        self._process.stdin.flush()
        self._line()

    def stop(self) -> None:
        self._process.kill()
        self._process.wait()

    def _line(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline()


def run(figures: Figures, bootstrap: str) -> None:
    """Measure with replay endpoints, so that idle sources are asked for their tails."""
    prefix = "bench-idle"
    asyncio.run(topics.apply(Settings(kafka=Kafka(bootstrap_servers=bootstrap, topic_prefix=prefix))))
    engines = EngineProcess(SOURCES)
    with tempfile.TemporaryDirectory() as directory:
        port = free_port()
        config = Path(directory) / "kvlens.toml"
        config.write_text(
            f'[kafka]\nbootstrap_servers = "{bootstrap}"\ntopic_prefix = "{prefix}"\n'
            f"[connector]\nmetrics_port = {port}\n"
            + "".join(
                f'[[replicas]]\nid = "vllm-{number}"\nmodel = "bench"\nendpoint = "{endpoint}"\n'
                f'replay_endpoint = "{replay}"\n'
                for number, (endpoint, replay) in enumerate(engines.endpoints)
            )
        )
        with launched(["connect", "--config", str(config)], dict(os.environ)) as process:
            deadline = time.monotonic() + 60
            while not _all_connected(port):
                if process.poll() is not None or time.monotonic() > deadline:
                    raise SystemExit("the connector did not connect to every engine")
                time.sleep(0.5)
            time.sleep(SETTLE_SECONDS)
            figures.add(f"connector, {SOURCES} idle sources: CPU", _share(process.pid), "% of a core")
            figures.add(
                f"connector, {SOURCES} idle sources: memory", resident_bytes(process.pid) / 2**20, "MiB"
            )
            before = cpu_seconds(process.pid)
            engines.publish(BATCHES_PER_SECOND, SECONDS)
            used = cpu_seconds(process.pid) - before
            name = f"connector, {SOURCES} sources, {BATCHES_PER_SECOND} batches/s together"
            figures.add(f"{name}: CPU", used / SECONDS * 100, "% of a core")
            figures.add(f"{name}: memory", resident_bytes(process.pid) / 2**20, "MiB")
            expected = BATCHES_PER_SECOND * SECONDS
            taken = metric(port, "kvlens_connector_batches_total")
            if abs(taken - expected) > expected / 50:
                raise SystemExit(f"{taken:.0f} batches were taken instead of {expected:.0f}")
    engines.stop()


def _all_connected(port: int) -> bool:
    try:
        return metric(port, "kvlens_connector_source_connected{") == SOURCES
    except OSError:
        return False


def _share(pid: int) -> float:
    before = cpu_seconds(pid)
    time.sleep(SECONDS)
    return (cpu_seconds(pid) - before) / SECONDS * 100
