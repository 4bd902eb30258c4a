"""Simulated engines that remember what they published, a connector process to hurt, and its log."""

from __future__ import annotations

import asyncio
import json
import os
import queue
import secrets
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import msgspec
import pytest
import zmq
from aiokafka import AIOKafkaConsumer, TopicPartition

from connectors.normalise import Normaliser
from pipeline import topics
from pipeline.local.broker.embedded import EmbeddedBroker
from pipeline.local.simulator.publisher import Publisher, PublisherSettings
from schemas.events import Batch, Event, EventsRecord
from schemas.settings import Connector, Kafka, Replica, Settings

ROOT = Path(__file__).resolve().parents[3]


class Engine:
    """The sockets of an engine; everything published is kept, life by life."""

    def __init__(
        self,
        context: zmq.Context[zmq.Socket[bytes]],
        name: str,
        *,
        frames: Literal[2, 3] = 3,
        buffer_steps: int = 10_000,
        replay: bool = True,
    ) -> None:
        anywhere = "tcp://127.0.0.1:0"
        self.name = name
        self.publisher = Publisher(
            PublisherSettings(
                anywhere, anywhere if replay else None, buffer_steps=buffer_steps, replay_frames=frames
            ),
            context,
        )
        self.lives: list[list[bytes]] = [[]]
        self._stored = 0

    @property
    def replica(self) -> Replica:
        return Replica(
            id=self.name,
            model="m",
            endpoint=self.publisher.endpoint,
            replay_endpoint=self.publisher.replay_endpoint,
        )

    @property
    def published(self) -> list[bytes]:
        """Payloads of the present life."""
        return self.lives[-1]

    def publish(self, count: int = 1) -> None:
        """Each batch stores a block that was never there, and every third removes the one before."""
        for _ in range(count):
            self._stored += 1
            events: list[Any] = [["BlockStored", [self._stored], None, [1, 2], 2, None, "GPU", None]]
            if self._stored % 3 == 0:
                events.append(["BlockRemoved", [self._stored - 1], "GPU"])
            payload = msgspec.msgpack.encode([time.time(), events, 0])
            self.publisher.publish(payload)
            self.published.append(payload)

    def restart(self) -> None:
        self.publisher.restart()
        self.lives.append([])


class Traffic:
    """Publishes on all engines in the background until it is left."""

    def __init__(self, engines: Sequence[Engine], pause_seconds: float = 0.003) -> None:
        self._engines = engines
        self._pause_seconds = pause_seconds
        self._ended = threading.Event()
        self._to_restart: queue.SimpleQueue[Engine] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Traffic:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    def restart(self, engine: Engine) -> None:
        """Let an engine begin a new life between two of its batches."""
        self._to_restart.put(engine)

    def _run(self) -> None:
        while not self._ended.wait(self._pause_seconds):
            while not self._to_restart.empty():
                self._to_restart.get().restart()
            for engine in self._engines:
                engine.publish()


@dataclass
class ConnectorProcess:
    """`kvlens connect` as a process."""

    process: subprocess.Popen[bytes]
    log: Path

    def said(self) -> str:
        return self.log.read_text()

    def wait_said(self, words: str, seconds: float = 30.0) -> None:
        deadline = time.monotonic() + seconds
        while words not in self.said():
            assert self.process.poll() is None, self.said()[-3000:]
            assert time.monotonic() < deadline, self.said()[-3000:]
            time.sleep(0.02)

    def kill(self) -> None:
        assert self.process.poll() is None, self.said()[-3000:]
        self.process.kill()
        self.process.wait(10)

    def stop(self) -> None:
        self.process.send_signal(signal.SIGTERM)
        assert self.process.wait(30) == 0, self.said()[-3000:]


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
        return asyncio.run(self._records())

    async def _records(self) -> list[EventsRecord]:
        topic = topics.topic_name(self.kafka, "events")
        places = [TopicPartition(topic, number) for number in range(8)]
        records = []
        async with AIOKafkaConsumer(bootstrap_servers=self.kafka.bootstrap_servers) as consumer:
            consumer.assign(places)
            await consumer.seek_to_beginning()
            ends = await consumer.end_offsets(places)
            while any([await consumer.position(place) < ends[place] for place in places]):
                for messages in (await consumer.getmany(timeout_ms=200)).values():
                    records += [msgspec.msgpack.decode(m.value, type=EventsRecord) for m in messages]
        return records

    def wait(self, enough: Callable[[], bool], seconds: float = 30.0) -> None:
        """Return when the log says so."""
        deadline = time.monotonic() + seconds
        while not enough():
            assert time.monotonic() < deadline, "not in the log in time"
            time.sleep(0.2)

    def wait_caught_up(self, engines: Iterable[Engine], seconds: float = 30.0) -> None:
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
    engines: list[Engine]
    processes: list[ConnectorProcess] = field(default_factory=list)

    @property
    def log(self) -> Log:
        return Log(self.settings.kafka)

    def traffic(self, pause_seconds: float = 0.003) -> Traffic:
        """Publish on all engines while it is entered."""
        return Traffic(self.engines, pause_seconds)

    def start(self) -> ConnectorProcess:
        """Start a connector process."""
        number = len(self.processes)
        config = self.directory / "kvlens.toml"
        config.write_text(_as_toml(self.settings))
        log = self.directory / f"connect-{number}.log"
        clean = {name: value for name, value in os.environ.items() if not name.startswith("KVLENS_")}
        with log.open("wb") as output:
            process = subprocess.Popen(
                [sys.executable, "-m", "pipeline.cli.main", "connect", "--config", str(config)],
                cwd=self.directory,
                env={**clean, "PYTHONPATH": str(ROOT)},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
            )
        self.processes.append(ConnectorProcess(process, log))
        return self.processes[-1]

    def close(self) -> None:
        for connector in self.processes:
            if connector.process.poll() is None:
                connector.process.kill()
                connector.process.wait(10)


def _as_toml(settings: Settings) -> str:
    document = msgspec.to_builtins(settings)
    sections = [(f"[{name}]", document[name]) for name in ("kafka", "connector")]
    sections += [("[[replicas]]", replica) for replica in document["replicas"]]
    return "\n".join(
        line
        for head, keys in sections
        for line in (
            head,
            *(f"{k} = {json.dumps(v)}" for k, v in keys.items() if isinstance(v, (str, int, float))),
        )
    )


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
            made = [Engine(context, f"engine-{number}", **options) for number, options in enumerate(engines)]
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
        normaliser = Normaliser(max_frame_bytes=1 << 24, forward_session_ids=False)
        return [
            normaliser.normalise(payload, seq=seq, received_at=1.0).events
            for seq, payload in enumerate(payloads)
        ]

    return normalised
