"""The index: ten million blocks of a thousand replicas, asked in process and over HTTP, killed and fed."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import json
import os
import secrets
import signal
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import aiohttp
import msgspec
import numpy as np
import numpy.typing as npt
import uvloop
import zmq
import zmq.asyncio
from aiokafka import AIOKafkaProducer
from connector import settled
from figures import Figures
from processes import launched, resident_bytes

from connectors.kafka.topics import partition_of, topic_name
from pipeline.index.following.partition import IndexedPartition
from pipeline.index.following.sources import Sources
from pipeline.index.index import Index as Answering
from pipeline.index.questions.question import Question
from pipeline.index.service import warm_up
from pipeline.kafka import topics
from pipeline.local.processes.ports import free_port
from pipeline.residency.partition import PartitionState
from pipeline.worker.checkpoint.log import CheckpointLog, Record
from schemas.events import Batch, EventsRecord, Opened, Removed, Stored
from schemas.settings import Index, Kafka, Settings, Worker
from tests.support.index_service import IndexProcess, index_process

REPLICAS = 1_000
BLOCKS = 10_000
"""Of each replica."""
OF_FOUR = 1_000
"""Of them, blocks that four replicas share."""
CHAIN = 128
PARTITIONS = 8
RATE = 500
"""Questions a second of the measured load."""
EACH = 4_000
"""Questions of each measurement."""
LINGERS = (0.1, 0.01)
"""Seconds that a connector waits before it publishes a run: its default, and a fresher one."""
EVENTS = 500
"""Of an engine behind a connector, whose way to the answer is measured."""

Hashes = npt.NDArray[np.uint64]


def held_by(replica: int, blocks: int = BLOCKS) -> Hashes:
    """Return the blocks of a replica, in the order of its chains; the first ones are those of four."""
    shared = np.random.default_rng(replica // 4).integers(1, 2**63, OF_FOUR, np.uint64)
    own = np.random.default_rng(10_000 + replica).integers(1, 2**63, blocks - OF_FOUR, np.uint64)
    return np.concatenate((shared, own))


def name_of(replica: int) -> str:
    return f"replica-{replica:04d}"


def _stored(hashes: Hashes, start: int, end: int) -> Stored:
    parent = hashes[start - 1 : start].astype(">u8").tobytes() if start else None
    return Stored(hashes[start:end].astype(">u8").tobytes(), 16, 16 * (end - start), parent)


def first_record(replica: int, now: float) -> EventsRecord:
    """Return how a replica came to hold what it holds; one block left, as in any cache that is full."""
    hashes = held_by(replica, BLOCKS + 1)
    stores = [_stored(hashes, at, min(at + 100, BLOCKS + 1)) for at in range(0, BLOCKS + 1, 100)]
    removal = Removed(hashes[-1:].astype(">u8").tobytes())
    batches = [
        Batch(None, now, now, [Opened(0, complete=True)]),
        Batch(0, now, now, [*stores, removal], len(stores)),
    ]
    return EventsRecord(name_of(replica), "bench", "bench/x/default", 0, 1, batches, engine="vllm")


def updates(replica: int, seq: int, blocks: int, now: float) -> EventsRecord:
    """Return a run that stores blocks and removes as many others."""
    fresh = np.random.default_rng(replica * 1_000_003 + seq).integers(1, 2**63, blocks // 2, np.uint64)
    events = [
        Stored(fresh.astype(">u8").tobytes(), 16, 16 * len(fresh)),
        Removed(fresh.astype(">u8").tobytes()),
    ]
    batch = Batch(seq, now, now, [*events], 2)
    return EventsRecord(
        name_of(replica),
        "bench",
        "bench/x/default",
        0,
        1,
        [batch],
        first_seq=seq,
        last_seq=seq,
        engine="vllm",
    )


def run(figures: Figures, bootstrap: str) -> None:
    print(f"index: {REPLICAS:,} replicas with {BLOCKS:,} blocks each", flush=True)
    warm_up()
    _in_process(figures)
    with tempfile.TemporaryDirectory(prefix="kvlens-bench-index-") as directory:
        prefix = f"bench-index-{secrets.token_hex(4)}"
        kafka = Kafka(bootstrap_servers=bootstrap, topic_prefix=prefix, group=prefix)
        settings = Settings(kafka=kafka, index=Index(port=0))
        asyncio.run(_prepared(settings))
        _over_http(figures, settings, Path(directory))


def _in_process(figures: Figures) -> None:
    before = resident_bytes(os.getpid())
    sources = Sources()
    partition = IndexedPartition(0, Worker(), sources)
    seconds = 0.0
    for replica in range(REPLICAS):
        record = first_record(replica, time.time())
        began = time.perf_counter()
        partition.apply(replica, record)
        partition.settle()
        seconds += time.perf_counter() - began
    blocks = sources.holdings.blocks
    figures.add("index: blocks held", blocks, "blocks")
    figures.add("index: counted by one thread", blocks / seconds, "blocks/s")
    figures.add("index: table", sources.holdings.bytes_allocated / blocks, "bytes/block")
    figures.add(
        "index: process, all that it needs", (resident_bytes(os.getpid()) - before) / blocks, "bytes/block"
    )
    index = Answering(sources)
    chains = [held_by(replica)[:CHAIN].tolist() for replica in range(0, REPLICAS, 7)]
    for shared, name in ((chains, "four replicas hold"), (_nobody(), "nobody holds")):
        times = [_asked(index, shared[number % len(shared)]) for number in range(EACH)]
        figures.add(f"index: in process, {CHAIN} hashes {name}, p50", _share(times, 0.5) * 1e6, "µs")
        figures.add(f"index: in process, {CHAIN} hashes {name}, p99", _share(times, 0.99) * 1e6, "µs")


def _nobody() -> list[list[int]]:
    return np.random.default_rng(5).integers(1, 2**63, (50, CHAIN), np.uint64).tolist()  # type: ignore[no-any-return]


def _asked(index: Answering, chain: list[int]) -> float:
    began = time.perf_counter()
    question = Question("bench", block_hashes=[*chain])
    index.answer(question, index.scopes_of(question), [*chain], 0.0)
    return time.perf_counter() - began


def _share(times: Sequence[float], share: float) -> float:
    return sorted(times)[int(share * (len(times) - 1))]


async def _prepared(settings: Settings) -> None:
    """Write what the replicas published, and the checkpoint of a worker that has applied it."""
    await topics.apply(settings)
    events = topic_name(settings.kafka, "events")
    into = topic_name(settings.kafka, "checkpoints_replica")
    of_partition: list[list[int]] = [[] for _ in range(PARTITIONS)]
    for replica in range(REPLICAS):
        of_partition[partition_of(name_of(replica), PARTITIONS)].append(replica)
    async with _producer(settings) as producer:
        for number, replicas in enumerate(of_partition):
            state = PartitionState(number, Worker(), shards=1, partitions=PARTITIONS)
            for replica in replicas:
                record = first_record(replica, time.time())
                found = await producer.send_and_wait(
                    events, msgspec.msgpack.encode(record), key=record.replica.encode(), partition=number
                )
                state.apply(found.offset, record)
            log = CheckpointLog(settings.kafka, group=f"{into}.bench", topic=events, partition=number)
            await log.open()
            cut = state.cut(0.0)
            await log.commit(
                cut.next_offset, [Record(into, number, key, value) for key, value in cut.checkpoints]
            )
            await log.close()


def _producer(settings: Settings) -> AIOKafkaProducer:
    return AIOKafkaProducer(
        bootstrap_servers=settings.kafka.bootstrap_servers,
        enable_idempotence=True,
        max_request_size=8 << 20,
        compression_type="zstd",
    )


def _over_http(figures: Figures, settings: Settings, directory: Path) -> None:
    index_process(settings, directory, "first").kill()
    began = time.monotonic()
    index = index_process(settings, directory)
    try:
        index.wait_said("caught up with the log", seconds=600)
        figures.add("index: from kill -9 to ready", time.monotonic() - began, "s")
        figures.add("index: process when ready", resident_bytes(index.process.pid) / 1e7, "bytes/block")
        # Whoever asks shall not wait for its own collector.
        gc.collect()
        gc.freeze()
        uvloop.run(_asked_over_http(figures, settings, directory, index))
    finally:
        index.close()


async def _asked_over_http(
    figures: Figures, settings: Settings, directory: Path, index: IndexProcess
) -> None:
    bodies = [_body(held_by(replica)[:CHAIN]) for replica in range(0, REPLICAS, 7)]
    async with aiohttp.ClientSession() as session:
        url = f"{index.url}query_by_hash"
        times = await _load(session, url, bodies, RATE, EACH)
        figures.add(f"index: over HTTP at {RATE}/s, p50", _share(times, 0.5) * 1e3, "ms")
        figures.add(f"index: over HTTP at {RATE}/s, p99", _share(times, 0.99) * 1e3, "ms")
        for name, some, each in (("one by one", bodies, 1), ("64 at once", [_prompts()], 64)):
            used, asked = _cpu(index), max(EACH // each, 50)
            await _load(session, url, some, 0, asked)
            figures.add(
                f"index: over HTTP, {name}", asked * each / (_cpu(index) - used), "lookups/s of a core"
            )
        await _freshness(figures, settings, session, url)
        await _through_a_connector(figures, settings, directory, session, url)
        await _fed(figures, settings, index, session, bodies)


def _cpu(index: IndexProcess) -> float:
    fields = Path(f"/proc/{index.process.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / 100


def _body(hashes: Hashes) -> bytes:
    return json.dumps({"model_name": "bench", "block_hashes": hashes.tolist()}).encode()


def _prompts() -> bytes:
    prompts = [held_by(replica)[:CHAIN].tolist() for replica in range(0, REPLICAS, REPLICAS // 64)][:64]
    return json.dumps({"model_name": "bench", "prompts": prompts}).encode()


async def _load(
    session: aiohttp.ClientSession, url: str, bodies: Sequence[bytes], rate: int, count: int
) -> list[float]:
    """Ask so many times, at a rate, or with 0 over four connections at once; return what each took."""
    times: list[float] = []

    async def ask(number: int) -> None:
        began = time.perf_counter()
        async with session.post(url, data=bodies[number % len(bodies)]) as response:
            await response.read()
            assert response.status == 200
        times.append(time.perf_counter() - began)

    if not rate:
        numbers: Iterator[int] = iter(range(count))

        async def one_after_the_other() -> None:
            for number in numbers:
                await ask(number)

        await asyncio.gather(*(one_after_the_other() for _ in range(4)))
        return times
    began, asked = time.perf_counter(), []
    for number in range(count):
        await asyncio.sleep(max(0.0, began + number / rate - time.perf_counter()))
        asked.append(asyncio.create_task(ask(number)))
    await asyncio.gather(*asked)
    return times


async def _freshness(figures: Figures, settings: Settings, session: aiohttp.ClientSession, url: str) -> None:
    """Publish one block after the other, and ask until it is found."""
    topic, times = topic_name(settings.kafka, "events"), []
    async with _producer(settings) as producer:
        for number in range(100):
            replica, block = number % REPLICAS, 2**62 + number
            stored = Stored(block.to_bytes(8, "big"), 16, 16)
            now = time.time()
            record = EventsRecord(
                name_of(replica), "bench", "bench/x/default", 0, 1, [Batch(1, now, now, [stored], 1)], 1, 1
            )
            began = time.perf_counter()
            await producer.send(
                topic,
                msgspec.msgpack.encode(record),
                key=record.replica.encode(),
                partition=partition_of(record.replica, PARTITIONS),
            )
            body = _body(np.array([block], np.uint64))
            while True:
                async with session.post(url, data=body) as response:
                    if (await response.json())["instances"]:
                        break
            times.append(time.perf_counter() - began)
    figures.add("index: from the producer to the answer, p50", _share(times, 0.5) * 1e3, "ms")
    figures.add("index: from the producer to the answer, p99", _share(times, 0.99) * 1e3, "ms")


async def _through_a_connector(
    figures: Figures, settings: Settings, directory: Path, session: aiohttp.ClientSession, url: str
) -> None:
    """Let an engine publish one block after the other, and ask until it is found."""
    for linger in LINGERS:
        name, port = f"engine-{linger}", free_port()
        config = directory / f"connector-{linger}.toml"
        config.write_text(
            f'[kafka]\nbootstrap_servers = "{settings.kafka.bootstrap_servers}"\n'
            f'topic_prefix = "{settings.kafka.topic_prefix}"\n'
            f"[connector]\nlinger_seconds = {linger}\n"
            f'[[replicas]]\nid = "{name}"\nmodel = "bench"\nendpoint = "tcp://127.0.0.1:{port}"\n'
        )
        context = zmq.asyncio.Context()
        engine = context.socket(zmq.XPUB)
        engine.bind(f"tcp://127.0.0.1:{port}")
        try:
            with launched(["connect", "--config", str(config)], dict(os.environ)) as process:
                await engine.recv()  # subscribed
                await asyncio.to_thread(settled, process.pid)
                times = [await _announced(engine, number, session, url) for number in range(EVENTS)]
        finally:
            context.destroy(0)
        for share in (0.5, 0.99):
            figures.add(
                f"index: from the event to the answer, linger {linger * 1e3:.0f} ms, p{share * 100:.0f}",
                _share(times, share) * 1e3,
                "ms",
            )


async def _announced(
    engine: zmq.asyncio.Socket, number: int, session: aiohttp.ClientSession, url: str
) -> float:
    """Publish a batch as vLLM does; return the seconds until the index knows its block."""
    block = secrets.randbits(63)
    event = ["BlockStored", [block], None, [7] * 16, 16, None, "GPU", None]
    payload = msgspec.msgpack.encode([time.time(), [event], 0])
    body = _body(np.array([block], np.uint64))
    # Not in step with the connector's turns.
    await asyncio.sleep(secrets.randbelow(100) / 1e3)
    began = time.perf_counter()
    await engine.send_multipart([b"kv-events", number.to_bytes(8, "big"), payload])
    while True:
        async with session.post(url, data=body) as response:
            if (await response.json())["instances"]:
                return time.perf_counter() - began


async def _fed(
    figures: Figures,
    settings: Settings,
    index: IndexProcess,
    session: aiohttp.ClientSession,
    bodies: Sequence[bytes],
) -> None:
    """Stop it, publish a backlog, and let it follow as fast as it can while it answers."""
    topic, count, blocks = topic_name(settings.kafka, "events"), 4_000, 1_000
    before = await _applied(session, index)
    index.send(signal.SIGSTOP)
    async with _producer(settings) as producer:
        sent = [
            await producer.send(
                topic,
                msgspec.msgpack.encode(
                    updates(number % REPLICAS, 2 + number // REPLICAS, blocks, time.time())
                ),
                key=name_of(number % REPLICAS).encode(),
                partition=partition_of(name_of(number % REPLICAS), PARTITIONS),
            )
            for number in range(count)
        ]
        await asyncio.gather(*sent)
    used, began = _cpu(index), time.perf_counter()
    index.send(signal.SIGCONT)
    load = asyncio.create_task(_load(session, f"{index.url}query_by_hash", bodies, 100, 400))
    while await _applied(session, index) < before + count:
        pass
    seconds, used = time.perf_counter() - began, _cpu(index) - used
    times = await load
    figures.add("index: follows while it answers", count * blocks / seconds, "updates/s")
    figures.add("index: the same, by its processor time", count * blocks / used, "updates/s of a core")
    figures.add("index: over HTTP meanwhile, p99", _share(times, 0.99) * 1e3, "ms")


async def _applied(session: aiohttp.ClientSession, index: IndexProcess) -> float:
    async with session.get(f"{index.url}metrics") as response:
        page = await response.text()
    with contextlib.suppress(StopIteration):
        return float(next(line.split()[1] for line in page.splitlines() if line.startswith(RECORDS)))
    return 0.0


RECORDS = "kvlens_index_records_total "
