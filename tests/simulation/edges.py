"""Where the product ends: what it reaches the world through is replaced here, in all of its modules at once.

Above these names runs the product's own code. Whatever reaches the world by another way fails, since there is
neither a socket nor a server that it could reach.
"""

from __future__ import annotations

import asyncio
import gc
import sys
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from types import ModuleType, SimpleNamespace
from typing import Any, TypeVar, cast

import aiokafka
import aiokafka.admin
import aiokafka.client
import aiokafka.producer.message_accumulator

import connectors.kafka.reach
import connectors.kafka.topic_metadata
import connectors.normalise.scan
import connectors.order.idle
import connectors.order.pacing
import connectors.positions.keeper
import connectors.process.leaving
import connectors.reading
import connectors.receive.subscriber
import connectors.receive.warming
import connectors.replay.client
import connectors.replay.requests
import connectors.scrape.scraper
import connectors.telemetry.events
import pipeline.clickhouse.client
import pipeline.fleet.snapshot
import pipeline.index.following.follower
import pipeline.kafka.topics
import pipeline.residency.checkpoint.bases
import pipeline.residency.checkpoint.entries
import pipeline.residency.checkpoint.partition_bases
import pipeline.worker.exits
from connectors.kafka.topics import catalogue
from connectors.process.backoff import Backoff
from pipeline.kafka.topics import Found
from schemas.settings import Settings
from tests.simulation import clients, engine_sockets
from tests.simulation.loop import BEGINNING, Process, fatal, here
from tests.simulation.simulation import Simulation
from tests.simulation.store import StoreClient

Result = TypeVar("Result")


class Clock(ModuleType):
    """The module `time` as simulated processes see it."""

    def __init__(self) -> None:
        super().__init__("time")
        self.__dict__.update({name: value for name, value in vars(time).items() if not name.startswith("_")})
        self.time = self._wall  # type: ignore[assignment]
        self.monotonic = self._monotonic  # type: ignore[assignment]
        self.perf_counter = self.thread_time = self.process_time = self._worked

    def _process(self) -> Process | None:
        loop = asyncio._get_running_loop()
        return loop if isinstance(loop, Process) else None

    def _wall(self) -> float:
        process = self._process()
        return time.time() if process is None else BEGINNING + process.world.now + process.clock_ahead

    def _monotonic(self) -> float:
        process = self._process()
        return time.monotonic() if process is None else process.world.now

    def _worked(self) -> float:
        """Time passes when it is looked at, so that what is done in turns has several."""
        process = self._process()
        if process is None:
            return time.perf_counter()
        if process.world.rng.random() < 0.1:
            process.world.now += 0.015
        return process.world.now


async def _aside(work: Callable[[], Result]) -> Result:
    return await here().run_in_executor(None, work)


async def _reach(*args: Any, **options: Any) -> None: ...


_wait_for = asyncio.wait_for


async def _waits_itself(awaited: Awaitable[Result], timeout: float | None) -> Result:
    """As `asyncio.wait_for` does from Python 3.12 on: before, it made a task of what it awaits, which takes
    four turns more, a sixth of all."""
    if timeout is None or timeout <= 0:
        return await _wait_for(awaited, timeout)
    async with asyncio.timeout(timeout):
        return await awaited


async def describe(settings: Settings) -> list[Found]:
    topics = clients.broker_of(here()).topics
    prefix = settings.kafka.topic_prefix
    return [
        Found(name, False, topics[name], 1, 1, None, f"id of {name}", key=key, wanted_partitions=topics[name])
        for key, topic in catalogue().items()
        for name in [f"{prefix}.{topic.name}"]
    ]


class _Unscraped:
    """Engines have no pages."""

    task = None

    def __init__(self, **options: Any) -> None: ...
    def start(self) -> None: ...
    async def stop(self) -> None: ...
    def remove(self, replica: str) -> None: ...


class Unsaid:
    """Nobody reads logs and metrics of simulated processes."""

    def __getattr__(self, name: str) -> Unsaid:
        self.__dict__[name] = self  # found without a call from now on
        return self

    def __call__(self, *args: Any, **more: Any) -> Unsaid:
        return self


CLOCK = Clock()
_REPLACED: dict[Any, Any] = {
    time: CLOCK,
    gc: SimpleNamespace(collect=lambda: 0, freeze=lambda: None, set_threshold=lambda *of: None),
    pipeline.worker.exits.fatal: fatal,
    aiokafka.AIOKafkaConsumer: clients.Consumer,
    aiokafka.AIOKafkaProducer: clients.Producer,
    aiokafka.admin.AIOKafkaAdminClient: clients.Admin,
    aiokafka.client.AIOKafkaClient: clients.Client,
    aiokafka.producer.message_accumulator.BatchBuilder: clients.Batch,
    connectors.kafka.topic_metadata.topic_metadata: clients.topic_metadata,
    connectors.kafka.reach.reach: _reach,
    connectors.process.leaving.aside: _aside,
    connectors.receive.subscriber.Subscriber: engine_sockets.Subscriber,
    connectors.receive.warming.warm_up: lambda: None,
    connectors.replay.client.Replayer: engine_sockets.Replayer,
    connectors.scrape.scraper.Scraper: _Unscraped,
    connectors.telemetry.events.Telemetry: Unsaid,
    pipeline.kafka.topics.describe: describe,
}


_SMALL: dict[ModuleType, dict[str, Any]] = {
    connectors.order.idle: {"IDLE_SECONDS": 3.0},
    # An engine that was deaf is asked again before all is over, also for a last batch that was lost.
    connectors.order.pacing: {"UNANSWERED": Backoff(first=1.0, longest=2.0)},
    connectors.reading: {"IDLE_SECONDS": 3.0},
    connectors.positions.keeper: {"REFRESH_EVERY": 4, "OWNERS_EVERY": 1},
    connectors.replay.requests: {"LOOK_SECONDS": 0.8},
    pipeline.index.following.follower: {"_WAIT_MS": 500},
    pipeline.fleet.snapshot: {"MIN_CHANGES": 6, "MAX_SECONDS": 8.0, "BYTES_AT_ONCE": 200},
    pipeline.residency.checkpoint.bases: {
        "SHARE": 0.3,
        "MIN_CHANGES": 4,
        "MIN_SECONDS": 3.0,
        "BLOCKS_A_SECOND": 10.0,
        "HEAD_BYTES": 600,
    },
    pipeline.residency.checkpoint.entries: {"RECORD_ENTRIES": 8},
    pipeline.residency.checkpoint.partition_bases: {"BASE_BYTES": 200, "LAST_BLOCKS": 60},
}
"""Bounds that are far away in a small world, brought near."""


@contextmanager
def installed() -> Iterator[Callable[[Simulation | None], None]]:
    """Replace what the product reaches the world through; gives what tells which simulation runs."""
    connectors.normalise.scan.warm_up()
    current = SimpleNamespace(simulation=None)

    def connect(settings: Any) -> StoreClient:
        store = cast(Simulation, current.simulation).store
        return StoreClient(store, lambda: here().happens("insert"))

    replaced = {id(old): new for old, new in _REPLACED.items()}
    replaced[id(pipeline.clickhouse.client.connect)] = connect
    undo: list[tuple[dict[str, Any], str, Any]] = []
    for name, module in [*sys.modules.items()]:
        if name.startswith(("connectors.", "pipeline.")):
            for attribute, value in [*vars(module).items()]:
                if id(value) in replaced:
                    undo.append((vars(module), attribute, value))
                    vars(module)[attribute] = replaced[id(value)]
    if sys.version_info[:2] == (3, 11):
        undo.append((vars(asyncio), "wait_for", _wait_for))
        vars(asyncio)["wait_for"] = _waits_itself
    for module, bounds in _SMALL.items():
        undo += [(vars(module), attribute, vars(module)[attribute]) for attribute in bounds]
        vars(module).update(bounds)
    try:
        yield lambda simulation: setattr(current, "simulation", simulation)
    finally:
        for names, attribute, value in undo:
            names[attribute] = value
