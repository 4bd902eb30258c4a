"""How soon commands end after Ctrl-C: at each moment that tests/system/commands/test_stopping.py tries."""

from __future__ import annotations

import asyncio
import os
import signal
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import zmq
from figures import Figures

from pipeline.local.broker.embedded import EmbeddedBroker
from pipeline.local.clickhouse.embedded import EmbeddedStore
from pipeline.local.processes.ports import free_port
from tests.support.engines import PubSocket
from tests.support.patience import PATIENCE
from tests.support.stopping import ENGINE, RESOLVING, RUNNING, STARTING, WAITING, ended, installation


def run(figures: Figures) -> None:
    """Add the seconds from Ctrl-C to the end of each command, and the load of the machine meanwhile."""
    figures.add("load of the machine, last minute", os.getloadavg()[0], "")
    for moment in (*WAITING, *RESOLVING, *STARTING, *RUNNING):
        with tempfile.TemporaryDirectory(prefix="kvlens-stopping-") as directory:
            process = moment.start(Path(directory), free_port)
            try:
                _add(figures, moment.name, ended(process, signal.SIGINT, PATIENCE)[1])
            finally:
                process.close()
    _at_work(figures, "at work", lambda part: None)
    _at_work(figures, "Kafka and ClickHouse hang", lambda part: part.signal(signal.SIGSTOP))
    _at_work(figures, "Kafka and ClickHouse are gone", lambda part: part.kill())
    figures.add("load of the machine, last minute", os.getloadavg()[0], "")


def _at_work(figures: Figures, name: str, hurt: Callable[[EmbeddedBroker | EmbeddedStore], None]) -> None:
    """Stop an installation whose parts something has happened to, while its engine goes on publishing."""
    engine = PubSocket(zmq.Context.instance())
    replicas = ENGINE.replace("tcp://127.0.0.1:9", engine.endpoint)
    with tempfile.TemporaryDirectory(prefix="kvlens-stopping-", ignore_cleanup_errors=True) as directory:
        parts = (
            EmbeddedBroker(Path(directory) / "broker", free_port()),
            EmbeddedStore(Path(directory) / "store", free_port()),
        )
        try:
            for part in parts:
                part.start()
            processes = installation(*parts, Path(directory), free_port, KVLENS_REPLICAS=replicas)
            try:
                asyncio.run(engine.subscribed())
                for part in parts:
                    hurt(part)
                engine.publish(7)
                time.sleep(1.0)  # in which the connector takes them
                for command, process in processes.items():
                    _add(figures, f"{command}, {name}", ended(process, signal.SIGINT, PATIENCE)[1])
            finally:
                for process in processes.values():
                    process.close()
        finally:
            for part in parts:
                part.kill()
            engine.close()


def _add(figures: Figures, name: str, seconds: float) -> None:
    figures.add(f"Ctrl-C to the end: {name}", seconds, "s")
