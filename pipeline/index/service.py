"""The service: compiled code first, then the checkpoints, then the log, and answers once it has caught up."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import msgspec
import numpy as np
import structlog

from connectors.process.leaving import aside
from connectors.process.stopping import done_before
from connectors.process.waiting import Waiting
from pipeline.index.follower import Follower
from pipeline.index.freshness import Freshness
from pipeline.index.index import Index
from pipeline.index.partition import IndexedPartition
from pipeline.index.question import Question
from pipeline.index.server import IndexServer
from pipeline.index.sources import Sources
from pipeline.index.telemetry import IndexMetrics
from pipeline.residency.intake.plain_runs import plain_runs
from schemas.events import Batch, EventsRecord, Opened, Removed, Stored
from schemas.settings import Settings, Worker

_log = structlog.get_logger(__name__)


async def serve(settings: Settings, stop: asyncio.Event, told: Callable[[str], None]) -> None:
    """Answer until `stop`; `told` gets the address.

    Waits for brokers and topics to be there. Raises PortUnavailable, and what ends a `Follower`.
    """
    metrics = IndexMetrics()
    freshness = Freshness(settings.index.stale_seconds)
    sources = Sources()
    server = IndexServer(Index(sources), freshness, metrics, settings.index)
    await server.start()
    told(server.url)
    try:
        await done_before(stop, asyncio.create_task(_follow(settings, sources, freshness, metrics)))
    finally:
        await server.stop()


async def _follow(settings: Settings, sources: Sources, freshness: Freshness, metrics: IndexMetrics) -> None:
    await aside(warm_up)
    waiting = Waiting(lambda line: _log.warning("waiting", cause=line))
    follower = Follower(settings, sources, freshness, metrics)
    await waiting.until(follower.reach)
    await follower.run()


def warm_up() -> None:
    """Compile, or load, everything that records and questions run through."""
    sources = Sources()
    partition = IndexedPartition(0, Worker(), sources)
    hashes = np.arange(1, 4096).astype(">u8").tobytes()
    batches = [
        Batch(None, 0.0, 0.0, [Opened(0, True)]),
        Batch(0, 1.0, 1.0, [Stored(hashes, 16)]),
        Batch(1, 2.0, 2.0, [Removed(hashes[:800])]),
    ]
    for offset, name in enumerate(("one", "other", "third")):
        partition.apply(offset, EventsRecord(name, "m", "d", 0, 1, batches))
    more = [Batch(2, 2.0, 2.0, [Stored(hashes[:80], 16), Removed(hashes[:80])])]
    for run in plain_runs([msgspec.msgpack.encode(EventsRecord("one", "m", "d", 0, 1, more))], Worker()):
        if run is not None:
            partition.apply(3, run)
    partition.settle()
    index, chain = Index(sources), [200, 201, 202]
    question = Question("m", block_hashes=[*chain])
    index.answer(question, index.scopes_of(question), [*chain], 0.0)
    sources.forget(sources.by_number[0])
    while sources.holdings.sweep():
        pass
