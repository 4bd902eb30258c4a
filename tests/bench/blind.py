"""Blind decisions: a router in front of eight engines asks an index that is killed in the middle.

The engines are caches of the simulator, their events go straight into the log. A decision is blind if no
index answered, or one did and what it said of the prompt is not what the engines hold at that moment.
"""

from __future__ import annotations

import asyncio
import random
import secrets
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
import uvloop
from aiokafka import AIOKafkaProducer
from figures import Figures

from connectors.kafka.topics import topic_name
from pipeline.kafka import topics
from pipeline.simulator.engine.events import Stored as EngineStored
from pipeline.simulator.traffic.trace import TraceReplica
from pipeline.traces.trace import TraceRequest
from schemas.events import Batch, Event, EventsRecord, Opened, Removed, Stored
from schemas.settings import Index, Kafka, Settings
from tests.support.client_partition import client_partition
from tests.support.index_service import PARTITIONS, IndexProcess, index_process

REPLICAS = 8
BLOCK_SIZE = 512
BLOCKS = 400
"""Of each cache."""
DECISIONS = 2_000
RATE = 50
"""Decisions a second."""
PATIENCE_SECONDS = 0.05
"""For an answer; then the router goes to the next index, or decides without."""
CONVERSATIONS = 120


@dataclass
class Outcome:
    """Of the decisions: how many had no answer, or a wrong one, and what the others cost."""

    unanswered: int = 0
    wrong: int = 0
    failed_over: int = 0
    seconds: list[float] = field(default_factory=list)


def run(figures: Figures, bootstrap: str) -> None:
    for indexes in (1, 2):
        print(f"blind: {indexes} index{'es' * (indexes > 1)}, killed after half of the decisions", flush=True)
        with tempfile.TemporaryDirectory(prefix="kvlens-bench-blind-") as directory:
            prefix = f"bench-blind-{secrets.token_hex(4)}"
            kafka = Kafka(bootstrap_servers=bootstrap, topic_prefix=prefix, group=prefix)
            settings = Settings(kafka=kafka, index=Index(port=0))
            outcome = uvloop.run(_decide(settings, Path(directory), indexes))
        name = f"blind, {indexes} index{'es' * (indexes > 1)}"
        figures.add(f"{name}: decisions", DECISIONS, "decisions")
        figures.add(f"{name}: without an answer", outcome.unanswered, "decisions")
        figures.add(f"{name}: with a wrong answer", outcome.wrong, "decisions")
        figures.add(f"{name}: answered by the other one", outcome.failed_over, "decisions")
        times = sorted(outcome.seconds)
        figures.add(f"{name}: until the answer, p99", times[int(0.99 * (len(times) - 1))] * 1e3, "ms")


class Engines:
    """Eight caches, and what they publish."""

    def __init__(self, producer: AIOKafkaProducer, topic: str) -> None:
        self._producer = producer
        self._topic = topic
        self.caches = [TraceReplica(BLOCK_SIZE, BLOCKS) for _ in range(REPLICAS)]
        self._seqs = [0] * REPLICAS

    async def open(self) -> None:
        now = time.time()
        for number in range(REPLICAS):
            await self._publish(number, [Batch(None, now, now, [Opened(0, complete=True)])])

    async def serve(self, number: int, ids: tuple[int, ...]) -> None:
        """Run a request on an engine; what it announces is in the log then."""
        tokens = len(ids) * BLOCK_SIZE
        events: list[Event] = []
        for event in self.caches[number].serve(TraceRequest(0.0, tokens, ids)):
            hashes = b"".join(digest[-8:] for digest in event.digests)  # type: ignore[union-attr]
            if isinstance(event, EngineStored):
                parent = event.parent[-8:] if event.parent else None
                tokens = len(event.digests) * BLOCK_SIZE
                events.append(Stored(hashes, BLOCK_SIZE, tokens, parent))
            else:
                events.append(Removed(hashes))
        if events:
            now = time.time()
            batch = Batch(self._seqs[number], now, now, events, len(events))
            self._seqs[number] += 1
            await self._publish(number, [batch])

    async def _publish(self, number: int, batches: list[Batch]) -> None:
        name = f"engine-{number}"
        record = EventsRecord(name, "m", "m/x/default", 0, 1, batches, engine="vllm")
        await self._producer.send_and_wait(
            self._topic,
            msgspec.msgpack.encode(record),
            key=name.encode(),
            partition=client_partition(name, PARTITIONS),
        )

    def held(self, ids: Sequence[int]) -> dict[str, int]:
        """Return the tokens of the prompt that each engine holds, those with none left out."""
        found: dict[str, int] = {}
        for number, cache in enumerate(self.caches):
            blocks = 0
            while blocks < len(ids) and cache.pool.lookup(ids[blocks]) is not None:
                blocks += 1
            if blocks:
                found[f"engine-{number}"] = blocks * BLOCK_SIZE
        return found

    def hashes(self, ids: Sequence[int]) -> list[int]:
        return [int.from_bytes(self.caches[0].digest(one)[-8:], "big") for one in ids]


def prompts(rng: random.Random) -> list[tuple[int, ...]]:
    """Return the prompts of conversations that grow from turn to turn, over a few system prompts."""
    open_ones: list[list[int]] = []
    fresh = iter(range(10, 10_000_000))
    asked = []
    for _ in range(DECISIONS):
        if (len(open_ones) < CONVERSATIONS and rng.random() < 0.3) or not open_ones:
            open_ones.append([rng.randrange(4)])
        one = rng.choice(open_ones)
        one += [next(fresh) for _ in range(rng.randint(1, 3))]
        asked.append(tuple(one))
        if len(one) > 24:
            open_ones.remove(one)
    return asked


async def _decide(settings: Settings, directory: Path, indexes: int) -> Outcome:
    await topics.apply(settings)
    rng, outcome = random.Random(7), Outcome()
    topic = topic_name(settings.kafka, "events")
    running = [index_process(settings, directory, f"index-{number}") for number in range(indexes)]
    try:
        async with (
            AIOKafkaProducer(bootstrap_servers=settings.kafka.bootstrap_servers) as producer,
            aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(PATIENCE_SECONDS)) as session,
        ):
            engines = Engines(producer, topic)
            await engines.open()
            for one in running:
                one.wait_said("caught up with the log")
            urls = [f"{one.url}query_by_hash" for one in running]
            began = time.perf_counter()
            for number, ids in enumerate(prompts(rng)):
                await asyncio.sleep(max(0.0, began + number / RATE - time.perf_counter()))
                if number == DECISIONS // 2:
                    running[0].kill()
                    # As whoever watches it does: at once, and it takes what a start takes.
                    settings_again = msgspec.structs.replace(
                        settings, index=msgspec.structs.replace(settings.index, port=_port(running[0]))
                    )
                    again = asyncio.create_task(
                        asyncio.to_thread(index_process, settings_again, directory, "again")
                    )
                chosen = await _asked(session, urls, engines, ids, outcome)
                await engines.serve(rng.randrange(REPLICAS) if chosen is None else chosen, ids)
            running.append(await again)
    finally:
        for one in running:
            one.close()
    return outcome


def _port(index: IndexProcess) -> int:
    return int(index.url.rstrip("/").rpartition(":")[2])


async def _asked(
    session: aiohttp.ClientSession,
    urls: Sequence[str],
    engines: Engines,
    ids: tuple[int, ...],
    outcome: Outcome,
) -> int | None:
    """Return the engine with the longest match, None if no index answers; note how it went."""
    began = time.perf_counter()
    answer = None
    for url in urls:
        answer = await _answer(session, url, engines.hashes(ids))
        if answer is not None:
            outcome.failed_over += url != urls[0]
            break
    truth = engines.held(ids)
    if answer is None:
        outcome.unanswered += 1
        return None
    outcome.seconds.append(time.perf_counter() - began)
    told = {name: match["longest_matched"] for name, match in answer["instances"].items()}
    outcome.wrong += told != truth
    if not told:
        return None
    return int(max(told, key=lambda name: (told[name], name)).rpartition("-")[2])


async def _answer(session: aiohttp.ClientSession, url: str, hashes: list[int]) -> dict[str, Any] | None:
    """Return what an index answers; one that is behind is no use, as it says itself."""
    try:
        async with session.post(url, json={"model_name": "m", "block_hashes": hashes}) as response:
            if response.status != 200:
                return None
            answer: dict[str, Any] = await response.json()
            return None if answer["index"]["stale"] else answer
    except (aiohttp.ClientError, asyncio.TimeoutError):
        return None
