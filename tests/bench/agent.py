"""The replica agent through Faust, from Kafka to ClickHouse: block operations per second and core."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

import msgspec
import numpy as np
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from figures import Figures
from payloads import captures
from processes import cpu_seconds, launched, resident_bytes

from connectors.order.stream import SourceStream
from connectors.sources import Source
from pipeline.clickhouse import migrations
from pipeline.kafka import topics
from pipeline.worker.warming import warm_up
from schemas.events import Event, EventsRecord, Removed, Stored
from schemas.settings import ClickHouse, Connector, Kafka, Settings
from tests.support.client_partition import client_partition

_encode = msgspec.msgpack.Encoder().encode
ROUNDS = 160
"""How often each capture is played to its replica, every time with other hashes."""
RUNS = 3


def records_of(replica: str, payloads: Sequence[bytes], settings: Connector) -> list[EventsRecord]:
    """Return the records a connector would publish for these payloads at full rate."""
    source = Source(replica, 0, "bench", "default", "bench", "tcp://127.0.0.1:1")
    stream = SourceStream(source, settings, time.time)
    records: list[EventsRecord] = []
    for seq, payload in enumerate(payloads):
        records += stream.feed((b"", seq.to_bytes(8, "big"), payload), time.time())
    return records + stream.flush()


def played_on(records: Sequence[EventsRecord], rounds: range, seconds: float = 0.0) -> list[EventsRecord]:
    """Return a stream that goes on: the records again and again, with other hashes and sequence numbers.

    Each round is so many seconds after the one before.
    """
    length = max(record.last_seq or 0 for record in records) + 1
    result = []
    began = time.time()
    for number in rounds:
        now = began + (number - rounds.start) * seconds
        salt = np.uint64(number * 0x9E3779B97F4A7C15 % 2**64)
        for record in records:
            batches = [
                msgspec.structs.replace(
                    batch,
                    seq=batch.seq + number * length,
                    # Captured times are moved to now, or the source would be carried forward from then on.
                    ts=now,
                    received_at=now,
                    events=[_salted(event, salt) for event in batch.events],
                )
                if batch.seq is not None
                else batch
                for batch in record.batches
                if batch.seq is not None or number == 0
            ]
            result.append(
                msgspec.structs.replace(
                    record, batches=batches, first_seq=batches[-1].seq, last_seq=batches[-1].seq
                )
            )
    return result


def _salted(event: Event, salt: np.uint64) -> Event:
    if isinstance(event, (Stored, Removed)):
        event = msgspec.structs.replace(event, hashes=_xor(event.hashes, salt))
        if isinstance(event, Stored) and event.parent is not None:
            event.parent = _xor(event.parent, salt)
    return event


def _xor(packed: bytes, salt: np.uint64) -> bytes:
    return (np.frombuffer(packed, ">u8") ^ salt).astype(">u8").tobytes()


def block_operations(records: Sequence[EventsRecord]) -> int:
    return sum(
        len(event.hashes) // 8
        for record in records
        for batch in record.batches
        for event in batch.events
        if isinstance(event, (Stored, Removed))
    )


async def produce(bootstrap: str, topic: str, records: Sequence[EventsRecord], partitions: int) -> None:
    producer = AIOKafkaProducer(bootstrap_servers=bootstrap, compression_type="zstd", linger_ms=5)
    await producer.start()
    try:
        futures = [
            await producer.send(
                topic,
                _encode(record),
                key=record.replica.encode(),
                partition=client_partition(record.replica, partitions),
                headers=[("content-type", b"application/msgpack")],
            )
            for record in records
        ]
        await asyncio.gather(*futures)
    finally:
        await producer.stop()


async def committed(bootstrap: str, topic: str, group: str, partitions: int) -> tuple[int, int]:
    """Return (offsets committed by the group, offsets in the topic), summed."""
    consumer = AIOKafkaConsumer(bootstrap_servers=bootstrap, group_id=group, enable_auto_commit=False)
    await consumer.start()
    try:
        parts = [TopicPartition(topic, number) for number in range(partitions)]
        consumer.assign(parts)
        ends = await consumer.end_offsets(parts)
        done = [await consumer.committed(part) or 0 for part in parts]
        return sum(done), sum(ends.values())
    finally:
        await consumer.stop()


async def _bare_loop(bootstrap: str, topic: str, partitions: int) -> float:
    """Return CPU seconds of reading, decoding and counting references in a dict, without Faust."""
    consumer = AIOKafkaConsumer(bootstrap_servers=bootstrap, auto_offset_reset="earliest")
    await consumer.start()
    decode = msgspec.msgpack.Decoder(EventsRecord).decode
    parts = [TopicPartition(topic, number) for number in range(partitions)]
    consumer.assign(parts)
    await consumer.seek_to_beginning()
    ends = await consumer.end_offsets(parts)
    left = sum(ends.values())
    counts: dict[tuple[str, str, int, bytes], int] = {}
    began = time.process_time()
    while left:
        for batch in (await consumer.getmany(timeout_ms=1000)).values():
            left -= len(batch)
            for message in batch:
                record = decode(message.value)
                for engine_batch in record.batches:
                    for event in engine_batch.events:
                        if isinstance(event, (Stored, Removed)):
                            step = 1 if isinstance(event, Stored) else -1
                            packed = event.hashes
                            for at in range(0, len(packed), 8):
                                key = (record.replica, event.medium, event.group_idx, packed[at : at + 8])
                                count = counts.get(key, 0) + step
                                if count > 0:
                                    counts[key] = count
                                else:
                                    counts.pop(key, None)
    used = time.process_time() - began
    await consumer.stop()
    return used


@dataclass(frozen=True)
class Run:
    """A worker and the bare loop over the same records, one after the other."""

    worker: float
    """CPU seconds, without those of a start."""
    bare: float
    wall: float
    grown: int
    """Bytes of memory."""

    @property
    def times(self) -> float:
        """How much more the worker does in a CPU second."""
        return self.bare / self.worker


def run(figures: Figures, bootstrap: str, store_url: str) -> None:
    """Measure; needs an empty broker and store."""
    records: list[EventsRecord] = []
    for name, payloads in captures().items():
        records += played_on(records_of(name, payloads, Connector()), range(ROUNDS))
    operations = block_operations(records)
    # Or the first worker would compile what the second one finds.
    warm_up()
    runs = [_measured(bootstrap, store_url, f"bench-agent-{number}", records) for number in range(RUNS)]
    worker = median(each.worker for each in runs)
    figures.add(
        "agent: block operations through Faust, Kafka to rows", operations / worker, "block-ops/s/core"
    )
    figures.add("agent: CPU per block operation", worker / operations * 1e6, "µs")
    figures.add("agent: CPU per record of 32 KiB", worker / len(records) * 1e6, "µs")
    wall = median(each.wall for each in runs)
    figures.add(
        "agent: wall clock, producer and broker on the same machine", operations / wall, "block-ops/s"
    )
    bare = median(each.bare for each in runs)
    figures.add("limit: bare aiokafka loop with a dict, no tables", operations / bare, "block-ops/s/core")
    for number, each in enumerate(runs, 1):
        figures.add(f"agent: of the bare loop of the same run, {number}", each.times, "x")
    figures.add("agent: of the bare loop, the median", median(each.times for each in runs), "x")
    figures.add("agent: memory grown by a run, all state", median(each.grown for each in runs) / 1e6, "MB")


def _measured(bootstrap: str, store_url: str, prefix: str, records: Sequence[EventsRecord]) -> Run:
    settings = Settings(
        kafka=Kafka(bootstrap_servers=bootstrap, topic_prefix=prefix, group=prefix),
        clickhouse=ClickHouse(url=store_url, database=prefix.replace("-", "_")),
    )
    asyncio.run(topics.apply(settings))
    migrations.apply(settings)
    topic, partitions = f"{prefix}.events.v1", settings.kafka.partitions
    environment = {
        **os.environ,
        "KVLENS_KAFKA__BOOTSTRAP_SERVERS": bootstrap,
        "KVLENS_KAFKA__TOPIC_PREFIX": prefix,
        "KVLENS_KAFKA__GROUP": prefix,
        "KVLENS_CLICKHOUSE__URL": store_url,
        "KVLENS_CLICKHOUSE__DATABASE": settings.clickhouse.database,
        "KVLENS_WORKER__AGENTS": "replica",
        "KVLENS_WORKER__MAX_CLOCK_BEHIND_SECONDS": "1e9",
    }
    with launched(["work"], environment) as worker:
        time.sleep(8)
        start_up, memory = cpu_seconds(worker.pid), resident_bytes(worker.pid)
    # Produced before, not beside: the cores' speed would be shared.
    asyncio.run(produce(bootstrap, topic, records, partitions))
    with launched(["work"], environment) as worker:
        began = time.monotonic()
        while True:
            done, end = asyncio.run(committed(bootstrap, topic, f"{prefix}.replica", partitions))
            if done >= end > 0:
                break
            if worker.poll() is not None or time.monotonic() - began > 300:
                raise SystemExit(f"the worker did not finish: {done} of {end} offsets")
            time.sleep(1)
        wall = time.monotonic() - began
        used = cpu_seconds(worker.pid) - start_up
        grown = resident_bytes(worker.pid) - memory
    return Run(used, asyncio.run(_bare_loop(bootstrap, topic, partitions)), wall, grown)
