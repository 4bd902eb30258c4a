"""The index service: compiles its code, loads checkpoints, follows the log, answers once it has caught up.

For a moment of the past it reads the log from its beginning up to that moment.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import msgspec
import numpy as np
import structlog

from connectors.kafka.zstd import keep_zstd_contexts
from connectors.process.leaving import aside
from connectors.process.stopping import done_before, ended
from connectors.process.waiting import Waiting
from pipeline.index.choices.log import ChoiceLog
from pipeline.index.following.follower import Follower
from pipeline.index.following.partition import IndexedPartition
from pipeline.index.following.past import past
from pipeline.index.following.sources import Sources
from pipeline.index.freshness import STALE_SECONDS, Freshness
from pipeline.index.index import Index
from pipeline.index.questions.question import asked
from pipeline.index.server import IndexServer
from pipeline.index.telemetry import IndexMetrics
from pipeline.reading.records import read
from pipeline.residency.partition import PartitionState
from schemas.events import Batch, EventsRecord, Opened, Removed, Stored
from schemas.settings import Settings, Worker

_log = structlog.get_logger(__name__)


async def serve(
    settings: Settings, stop: asyncio.Event, on_address: Callable[[str], None], *, at: float | None = None
) -> None:
    """Answer until `stop`, about the present or a past moment `at`; `on_address` is called with the address.

    For the present, wait until brokers and topics exist. Raises PortUnavailable, and whatever `Follower` and
    `past` raise.
    """
    keep_zstd_contexts()
    metrics = IndexMetrics()
    freshness = Freshness(STALE_SECONDS, at=at)
    sources = Sources()
    choices = ChoiceLog(settings) if settings.index.choices and at is None else None
    server = IndexServer(Index(sources), freshness, metrics, settings.index, choices)
    await server.start()
    on_address(server.url)
    try:
        if at is None:
            following = _follow(settings, sources, freshness, metrics)
            await done_before(stop, asyncio.create_task(_follow_and_connect(following, choices)))
        elif await done_before(stop, asyncio.create_task(_go_back(settings, sources, freshness, at))):
            await stop.wait()
    finally:
        await server.stop()
        if choices is not None:
            await choices.stop()


async def _follow_and_connect(following: Coroutine[Any, Any, None], choices: ChoiceLog | None) -> None:
    """Follow the log and meanwhile connect to the topic of choices: neither waits for the other."""
    connecting = [] if choices is None else [choices.connect()]
    tasks = [asyncio.create_task(each) for each in (following, *connecting)]
    try:
        await asyncio.gather(*tasks)
    finally:
        await ended(*tasks)


async def _follow(settings: Settings, sources: Sources, freshness: Freshness, metrics: IndexMetrics) -> None:
    await aside(warm_up)
    waiting = Waiting(lambda line: _log.warning("waiting", cause=line))
    follower = Follower(settings, sources, freshness, metrics)
    freshness.waiting_for = lambda: waiting.cause
    await waiting.until(follower.load)
    await follower.run()


async def _go_back(settings: Settings, sources: Sources, freshness: Freshness, at: float) -> None:
    await aside(warm_up)
    found = await past(settings, at, sources=sources, share=settings.index.share)
    freshness.reached_moment()
    _log.info("read the log up to the moment", at=at, records=found.records, whole_from=found.whole_from)


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
    value = msgspec.msgpack.encode(EventsRecord("one", "m", "d", 0, 1, more))
    for run in read([value], Worker(), offsets=[3]).runs:
        partition.apply(3, run)
    partition.settle()
    _restored(sources, hashes)
    index = Index(sources)
    about, chains, _ = asked(b'{"model": "m", "prompts": [[200, 201], [202]]}', most_hashes=3)
    index.answers(about, index.scopes_of(about), chains, 0.0)
    sources.forget(sources.by_number[0])
    while sources.holdings.sweep():
        pass


def _restored(sources: Sources, hashes: bytes) -> None:
    """Load a worker's checkpoint of sources with and without content hashes, and continue from it."""
    state = PartitionState(1, Worker(), shards=1)
    opened = Batch(None, 0.0, 0.0, [Opened(0, True)])
    for offset, (name, links) in enumerate((("plain", b""), ("linked", hashes))):
        stored = Batch(0, 1.0, 1.0, [Stored(hashes, 16, links=links)])
        state.apply(offset, EventsRecord(name, "m", "d", 0, 1, [opened, stored]))
    kept = {key: value for key, value in state.cut(2.0).checkpoints if value is not None}
    partition = IndexedPartition(1, Worker(), sources)
    partition.load(kept)
    stored = Batch(1, 2.0, 2.0, [Removed(hashes[:800]), Stored(hashes[:800], 16, links=hashes[:800])])
    partition.apply(2, EventsRecord("linked", "m", "d", 0, 1, [stored]))
    partition.settle()
