"""Topics as kvlens writes them, and worse: aborted and open transactions, tombstones, 6 MB in a record."""

from __future__ import annotations

import asyncio
import hashlib
import secrets
import time
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager
from typing import NamedTuple

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewTopic

from tests.support.patience import PATIENCE

PRODUCERS_TIME = 1_577_836_800_000
"""2020, in milliseconds: what the producer says. Brokers put their own time on records."""
LARGE_BYTES = 6_000_000
OPEN_MS = 900_000
"""How long the broker lets a transaction be open: its own bound."""


class Record(NamedTuple):
    """`sha256` None: a tombstone."""

    offset: int
    key: str
    sha256: str | None


class Topic(NamedTuple):
    """What partition 0, the only one, holds."""

    name: str
    committed: Sequence[Record]
    uncommitted: Sequence[Record] = ()
    """Aborted, and of a transaction that is open."""


def written(offset: int, key: str, value: bytes | None) -> Record:
    return Record(offset, key, None if value is None else hashlib.sha256(value).hexdigest())


class Writer:
    """Transactions of one producer in one topic."""

    def __init__(self, producer: AIOKafkaProducer, topic: str) -> None:
        self._producer = producer
        self._topic = topic

    async def transaction(self, values: Iterable[tuple[str, bytes | None]], end: str) -> list[Record]:
        """Write these; `end` is commit, abort or nothing: the transaction stays open."""
        await self._producer.begin_transaction()
        records = [await self.record(key, value) for key, value in values]
        if end == "commit":
            await self._producer.commit_transaction()
        elif end == "abort":
            await self._producer.abort_transaction()
        return records

    async def record(self, key: str, value: bytes | None) -> Record:
        placed = await self._producer.send_and_wait(
            self._topic, value, key=key.encode(), partition=0, timestamp_ms=PRODUCERS_TIME
        )
        return written(placed.offset, key, value)


@asynccontextmanager
async def writer(
    servers: str, topic: str, *, transactional: bool = True, compression: str = "zstd"
) -> AsyncIterator[Writer]:
    producer = AIOKafkaProducer(
        bootstrap_servers=servers,
        transactional_id=topic if transactional else None,
        transaction_timeout_ms=OPEN_MS,
        compression_type=compression,
        max_request_size=8 << 20,
        enable_idempotence=transactional,
    )
    await producer.start()
    try:
        yield Writer(producer, topic)
    finally:
        await producer.stop()


async def created(servers: str, kind: str, **config: str) -> str:
    name = f"{kind}-{secrets.token_hex(4)}"
    every = {"message.timestamp.type": "LogAppendTime", "max.message.bytes": str(8 << 20)}
    admin = AIOKafkaAdminClient(bootstrap_servers=servers)
    await admin.start()
    try:
        topic = NewTopic(
            name, 1, 1, topic_configs=every | {k.replace("_", "."): v for k, v in config.items()}
        )
        await admin.create_topics([topic])
    finally:
        await admin.close()
    return name


def some(*keys: str) -> list[tuple[str, bytes | None]]:
    return [(key, key.encode() * 100) for key in keys]


@asynccontextmanager
async def transactions(servers: str) -> AsyncIterator[Topic]:
    """Twice committed and aborted, committed once more, and open for as long as the context lasts."""
    name = await created(servers, "transactions")
    async with writer(servers, name) as write:
        committed = await write.transaction(some("a", "b", "c"), "commit")
        others = await write.transaction(some("d", "e"), "abort")
        committed += await write.transaction(some("f"), "commit")
        others += await write.transaction(some("g", "h"), "abort")
        committed += await write.transaction(some("i", "j"), "commit")
        others += await write.transaction(some("k", "l"), "")
        yield Topic(name, committed, others)


async def aborted_at_last(servers: str) -> Topic:
    """Ends with an aborted transaction: a worker was killed, and nothing came since."""
    name = await created(servers, "aborted-at-last")
    async with writer(servers, name) as write:
        committed = await write.transaction(some("a", "b", "c"), "commit")
        return Topic(name, committed, await write.transaction(some("d", "e"), "abort"))


async def with_gzip(servers: str) -> Topic:
    """As figures and choices are: every client reads it as it is installed."""
    name = await created(servers, "gzip")
    async with writer(servers, name, compression="gzip") as write:
        return Topic(name, await write.transaction(some("a", "b", "c"), "commit"))


async def large(servers: str) -> Topic:
    """A record of 6 MB between two small ones; no client's default is that large. No transactions."""
    name = await created(servers, "large")
    async with writer(servers, name, transactional=False) as write:
        values = [*some("a"), ("b", secrets.token_bytes(LARGE_BYTES)), *some("c")]
        return Topic(name, [await write.record(key, value) for key, value in values])


async def compacted(servers: str) -> Topic:
    """Compacted by the broker: tombstones, aborted records, transactions of which no record is left."""
    config = {
        "cleanup_policy": "compact",
        "segment_ms": "1000",
        "min_cleanable_dirty_ratio": "0.001",
        "min_compaction_lag_ms": "0",
    }
    name = await created(servers, "compacted", **config)
    async with writer(servers, name) as write:
        for _ in range(2):
            await write.transaction(some(*"abcdefgh"), "commit")
        await write.transaction(some("a", "b"), "abort")
        newest = await write.transaction([*some("a", "b"), ("c", None), ("d", None)], "commit")
        older = await write.transaction(some(*"efgh"), "commit")
        await asyncio.sleep(1.5)  # the segment's age, not luck: the next record begins another
        last = await write.transaction(some("i"), "commit")
        topic = Topic(name, [*newest, *older, *last])
        await _until_compacted(servers, topic)
        return topic


async def _until_compacted(servers: str, topic: Topic) -> None:
    place = TopicPartition(topic.name, 0)
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        async with AIOKafkaConsumer(bootstrap_servers=servers, isolation_level="read_committed") as consumer:
            consumer.assign([place])
            await consumer.seek_to_beginning(place)
            found: list[int] = []
            while not found or found[-1] < topic.committed[-1].offset:
                found += [one.offset for one in (await consumer.getmany(timeout_ms=500)).get(place, ())]
        if found == [one.offset for one in topic.committed]:
            return
        await asyncio.sleep(1)
    raise AssertionError("the broker did not compact it")
