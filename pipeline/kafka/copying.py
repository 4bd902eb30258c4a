"""Copies the events topic of another prefix, which has another number of partitions: each record once.

A replica's records stay in their order. They are in one partition unless the old topic got more partitions
since; so all partitions are read together (`whole_log.py`), and a record counts as well placed if its key
belonged there with any number of partitions that the topic can have had. What was copied is known after a
kill, too: offsets are committed in the new group once a chunk is acknowledged, and each record of the chunk
in flight has a header that says where it came from. Transactions are not needed; readers of the events topic
would see their aborted records.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

import msgspec
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition

from connectors.kafka.consumer import started_consumer
from connectors.kafka.errors import KAFKA_FAILURES, failure_reason
from connectors.kafka.private import client_of
from connectors.kafka.security import client_options
from connectors.kafka.topic_metadata import TopicMetadata, topic_metadata
from connectors.kafka.topics import catalogue, partition_of_key, topic_name
from connectors.kafka.zstd import keep_zstd_contexts
from pipeline.errors import KafkaUnavailable, PipelineError
from pipeline.kafka.membership import group_name, may_join
from pipeline.kafka.rights import COPY, copying, on_topics
from pipeline.kafka.whole_log import WholeLog
from schemas.settings import Settings

CHUNK_RECORDS = 500
"""Sent together, and acknowledged before the next ones are read."""
COPIED_FROM = "copied-from"
"""Header of a copied record: partition and offset that it had, `3:1042`."""
_FETCH_BYTES = 2 << 20
_BATCH_BYTES = 512 << 10
_REQUEST_BYTES = 9 << 20
"""A record as large as the topic takes, with its header."""


class Copied(NamedTuple):
    """What a copy did, in records."""

    copied: int
    lost: int
    """Gone from the old topic, by its retention, before they were copied."""
    misplaced: int
    """Left out: they are where no number of partitions up to the present one would have put their key."""
    came: int
    """Written to the old topic since the copy began: connectors still write there."""


class CopyTooLate(PipelineError):
    """Connectors write to the new topics already, so older records can no longer come before theirs."""

    topic: str
    line = (
        "connectors write to these topics already ({topic} has positions), and what is copied now "
        "would come after it; copy to another kafka.topic_prefix"
    )


async def copy_events(settings: Settings, prefix: str, say: Callable[[str], None]) -> Copied:
    """Copy the events topic of another prefix up to its present end, from where an earlier copy ended.

    `say` gets a line for each partition. Raises CopyTooLate, TopicMissing, TopicHidden, RightMissing,
    GroupRefused, LoginRefused, CertificateUnreadable and KafkaUnavailable.
    """
    keep_zstd_contexts()
    try:
        async with _opened(settings, prefix) as copy:
            return await copy.run(say)
    except KAFKA_FAILURES as error:
        raise KafkaUnavailable(settings.kafka.bootstrap_servers, failure_reason(error)) from error


@asynccontextmanager
async def _opened(settings: Settings, prefix: str) -> AsyncIterator[_Copy]:
    kafka = settings.kafka
    old = topic_name(msgspec.structs.replace(kafka, topic_prefix=prefix), "events")
    new, positions = (topic_name(kafka, key) for key in ("events", "positions"))
    needed = on_topics(copying(catalogue(), prefix, topic_prefix=kafka.topic_prefix, group=kafka.group))
    group = group_name(kafka, COPY)
    await may_join(kafka, [group])
    options = client_options(kafka)
    reading = {"enable_auto_commit": False, "auto_offset_reset": "earliest", **options}
    async with (
        started_consumer(max_partition_fetch_bytes=_FETCH_BYTES, **reading) as consumer,
        # A consumer of its own: aiokafka's coordinator gives up if partitions are assigned anew meanwhile.
        started_consumer(group_id=group, **reading) as commits,
    ):
        found = await topic_metadata(client_of(consumer), (old, new, positions))
        for name, topic in found.items():
            topic.require(*needed[name])
        written = await consumer.end_offsets([TopicPartition(positions, 0)])
        if any(written.values()):
            raise CopyTooLate(positions)
        producer = AIOKafkaProducer(
            enable_idempotence=True,
            compression_type=None if kafka.compression == "none" else kafka.compression,
            max_batch_size=_BATCH_BYTES,
            max_request_size=_REQUEST_BYTES,
            **options,
        )
        try:
            await producer.start()
            yield _Copy(consumer, commits, producer, _places(old, found), _places(new, found))
        finally:
            await producer.stop()


def _places(topic: str, found: Mapping[str, TopicMetadata]) -> list[TopicPartition]:
    return [TopicPartition(topic, number) for number in range(found[topic].partitions)]


class _Copy:
    def __init__(
        self,
        consumer: AIOKafkaConsumer,
        commits: AIOKafkaConsumer,
        producer: AIOKafkaProducer,
        old: list[TopicPartition],
        new: list[TopicPartition],
    ) -> None:
        self._consumer = consumer
        self._commits = commits
        self._producer = producer
        self._old = old
        self._new = new
        self._misplaced = 0
        self._first_misplaced = ""
        self._under_way: set[bytes] = set()
        """Origins of records that a killed copy may have sent without committing them."""

    async def run(self, say: Callable[[str], None]) -> Copied:
        self._under_way = await self._newest()
        begins = await self._consumer.beginning_offsets(self._old)
        ends = await self._consumer.end_offsets(self._old)
        self._commits.assign(self._old)
        done = {place: await self._commits.committed(place) or 0 for place in self._old}
        log = WholeLog(
            self._consumer,
            {place: (max(done[place], begins[place]), ends[place]) for place in self._old},
        )
        copied: Counter[int] = Counter()
        unread = sum(max(0, ends[place] - done[place]) for place in self._old)
        async for chunk, behind in log.chunks(CHUNK_RECORDS):
            unread -= len(chunk)
            copied.update(await self._copy(chunk))
            await self._commits.commit(behind)
        for place in self._old:
            count = copied[place.partition]
            say(f"{place.topic}, partition {place.partition} of {len(self._old)}: {count:,} records copied")
        if self._misplaced:
            say(f"{self._old[0].topic}, {self._first_misplaced}: the first record that is left out")
        now = await self._consumer.end_offsets(self._old)
        return Copied(
            sum(copied.values()),
            unread,  # retention goes on while the copy runs
            self._misplaced,
            sum(now[place] - ends[place] for place in self._old),
        )

    async def _copy(self, chunk: Sequence[Any]) -> list[int]:
        """Copy a chunk, except what was copied before; return the old partition of each record copied."""
        placed = [record for record in chunk if self._is_placed(record)]
        new = [record for record in placed if _origin(record) not in self._under_way]
        await asyncio.gather(*[await self._send(record) for record in new])
        return [record.partition for record in new]

    def _is_placed(self, record: Any) -> bool:
        if was_placed(record.key or b"", record.partition, len(self._old)):
            return True
        self._misplaced += 1
        self._first_misplaced = self._first_misplaced or (
            f"partition {record.partition}, offset {record.offset}"
        )
        return False

    async def _send(self, record: Any) -> asyncio.Future[Any]:
        place = self._new[partition_of_key(record.key or b"", len(self._new))]
        # The origin in an earlier copy means nothing any more.
        headers = [(name, value) for name, value in record.headers if name != COPIED_FROM]
        sent: asyncio.Future[Any] = await self._producer.send(
            place.topic,
            record.value,
            key=record.key,
            partition=place.partition,
            headers=[*headers, (COPIED_FROM, _origin(record))],
        )
        return sent

    async def _newest(self) -> set[bytes]:
        """Return the origins of the newest records of the new topic: at least all of the last chunk."""
        ends = await self._consumer.end_offsets(self._new)
        begins = await self._consumer.beginning_offsets(self._new)
        newest = {place: (max(begins[place], end - CHUNK_RECORDS), end) for place, end in ends.items()}
        found = set()
        async for chunk, _ in WholeLog(self._consumer, newest).chunks(CHUNK_RECORDS):
            found |= {dict(record.headers).get(COPIED_FROM, b"") for record in chunk}
        return found


def was_placed(key: bytes, partition: int, partitions: int) -> bool:
    """Return whether a record can have been well placed when written; its topic now has `partitions`.

    Topics only grow, and a topic that had this partition had more partitions than its number.
    """
    return any(partition_of_key(key, count) == partition for count in range(partition + 1, partitions + 1))


def _origin(record: Any) -> bytes:
    return f"{record.partition}:{record.offset}".encode()
