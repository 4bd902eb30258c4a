"""Simulated engines that remember what they published, a connector process to hurt, and its log."""

from __future__ import annotations

import asyncio
import queue
import secrets
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import zmq

from connectors.normalise.normaliser import Normaliser
from pipeline.kafka import topics
from pipeline.local.broker.embedded import EmbeddedBroker
from schemas.discovery_settings import Replica
from schemas.events import Batch, Event, EventsRecord
from schemas.settings import Connector, Kafka, Settings
from tests.support.engines import RememberingEngine
from tests.support.events_log import read_events
from tests.support.processes import KVLENS, Started, as_toml, started


class Traffic:
    """Publishes on all engines in the background until it is left."""

    def __init__(self, engines: Sequence[RememberingEngine], pause_seconds: float = 0.003) -> None:
        self._engines = engines
        self._pause_seconds = pause_seconds
        self._ended = threading.Event()
        self._to_restart: queue.SimpleQueue[RememberingEngine] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Traffic:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join(90.0)
        assert not self._thread.is_alive(), "not done after 90 s"

    def restart(self, engine: RememberingEngine) -> None:
        """Let an engine begin a new life between two of its batches."""
        self._to_restart.put(engine)

    def _run(self) -> None:
        while not self._ended.wait(self._pause_seconds):
            while not self._to_restart.empty():
                self._to_restart.get().restart()
            for engine in self._engines:
                engine.publish()


@dataclass
class Life:
    """One incarnation of a source as a reader of the log sees it: repeated batches left out."""

    incarnation: int
    batches: dict[int, Batch] = field(default_factory=dict)
    notices: list[Event] = field(default_factory=list)
    order: list[int] = field(default_factory=list)
    """Sequence numbers as they came for the first time."""
    repeated: int = 0

    def notice(self, kind: type[Event]) -> list[Event]:
        return [event for event in self.notices if type(event) is kind]


@dataclass
class Log:
    """The events topic of one topic prefix."""

    kafka: Kafka

    def lives(self, replica: str) -> list[Life]:
        """The incarnations of a source, in the order they begin."""
        found: dict[int, Life] = {}
        for record in self.records():
            if record.replica != replica:
                continue
            life = found.setdefault(record.incarnation, Life(record.incarnation))
            for batch in record.batches:
                if batch.seq is None:
                    life.notices += batch.events
                elif batch.seq in life.batches:
                    life.repeated += 1
                else:
                    life.batches[batch.seq] = batch
                    life.order.append(batch.seq)
        return list(found.values())

    def records(self) -> list[EventsRecord]:
        return read_events(self.kafka)

    def wait(self, enough: Callable[[], bool], seconds: float = 60.0) -> None:
        """Return when the log says so."""
        deadline = time.monotonic() + seconds
        while not enough():
            assert time.monotonic() < deadline, "not in the log in time"
            time.sleep(0.2)

    def wait_caught_up(self, engines: Iterable[RememberingEngine], seconds: float = 60.0) -> None:
        """Return when the last batch of each engine is in its last life in the log."""
        waiting = {engine.name: engine for engine in engines}

        def caught_up() -> bool:
            last = {
                record.replica: record.last_seq for record in self.records() if record.last_seq is not None
            }
            return all(last.get(name) == len(e.published) - 1 for name, e in waiting.items())

        self.wait(caught_up, seconds)


@dataclass
class Station:
    """A topic prefix, its engines, and the connector processes that read them one after the other."""

    settings: Settings
    directory: Path
    engines: list[RememberingEngine]
    processes: list[Started] = field(default_factory=list)

    @property
    def log(self) -> Log:
        return Log(self.settings.kafka)

    def traffic(self, pause_seconds: float = 0.003) -> Traffic:
        """Publish on all engines while it is entered."""
        return Traffic(self.engines, pause_seconds)

    def start(self) -> Started:
        """Start a connector process."""
        number = len(self.processes)
        config = self.directory / "kvlens.toml"
        config.write_text(as_toml(self.settings))
        log = self.directory / f"connect-{number}.log"
        command = [*KVLENS, "connect", "--config", str(config)]
        self.processes.append(started(command, log, cwd=self.directory))
        return self.processes[-1]

    def close(self) -> None:
        for connector in self.processes:
            connector.close()


@pytest.fixture
def new_station(broker: EmbeddedBroker, tmp_path: Path) -> Iterator[Callable[..., Station]]:
    """A function that makes a station of engines described by keywords, or of others' replicas."""
    with ExitStack() as stack:

        def make(
            engines: Sequence[dict[str, Any]] = (),
            *,
            kafka: Kafka | None = None,
            replicas: Sequence[Replica] = (),
            **connector: Any,
        ) -> Station:
            context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
            stack.callback(context.destroy, 0)
            made = [
                RememberingEngine(context, f"engine-{number}", **options)
                for number, options in enumerate(engines)
            ]
            for engine in made:
                stack.callback(engine.publisher.close)
            prefix = f"resuming-{secrets.token_hex(4)}"
            settings = Settings(
                kafka=kafka or Kafka(bootstrap_servers=broker.bootstrap_servers, topic_prefix=prefix),
                connector=Connector(**connector),
                replicas=(*replicas, *(engine.replica for engine in made)),
            )
            asyncio.run(topics.apply(settings))
            station = Station(settings, tmp_path, made)
            stack.callback(station.close)
            return station

        yield make


@pytest.fixture(scope="session")
def contents() -> Callable[[Sequence[bytes]], list[list[Event]]]:
    """A function that gives the events of an engine's batches, as records carry them."""

    def normalised(payloads: Sequence[bytes]) -> list[list[Event]]:
        normaliser = Normaliser(max_frame_bytes=1 << 24)
        return [
            normaliser.normalise(payload, seq=seq, received_at=1.0).events
            for seq, payload in enumerate(payloads)
        ]

    return normalised
