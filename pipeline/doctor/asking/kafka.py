"""Asks the broker for everything the doctor wants to know, in bounded time."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Container, Mapping
from dataclasses import replace
from typing import Any, TypeVar

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.errors import KafkaError, for_code

from connectors.kafka.consumer import stop_consumer
from connectors.kafka.errors import LoginRefused, failure_reason
from connectors.kafka.security import client_options
from connectors.kafka.topics import catalogue, topic_name
from connectors.process.tls_files import CertificateUnreadable
from pipeline.doctor.asking.groups import ask_group
from pipeline.doctor.asking.lmcache import ask_reports
from pipeline.doctor.asking.log_reader import LogReader
from pipeline.doctor.facts import GroupFacts, KafkaFacts, TopicFacts
from pipeline.errors import KafkaUnavailable
from pipeline.kafka.topics import Found, describe
from schemas.settings import Settings

LOG_SECONDS = 90.0
"""How far back the events topic is read, unless that is more than TAIL_RECORDS of a partition."""
SET_ASIDE_SECONDS = 3600.0
"""How far back the topic of records set aside is read, with the same bound."""
TAIL_RECORDS = 20_000
CHECKPOINT_RECORDS = 50
"""Offsets to read at the end of a checkpoint partition to find a record: some are transaction markers."""
_CHECKPOINTS = "checkpoints_"

Answer = TypeVar("Answer")


async def ask_kafka(settings: Settings, now: float, seconds: float) -> KafkaFacts:
    """Return what the broker answers within so many seconds; never raises for what it does."""
    kafka = settings.kafka
    unanswered: dict[str, str] = {}
    try:
        return await asyncio.wait_for(_ask(settings, now, seconds, unanswered), seconds)
    except asyncio.TimeoutError:
        return KafkaFacts(kafka.bootstrap_servers, f"no answer within {seconds:g} s")
    except KafkaUnavailable as error:
        return KafkaFacts(kafka.bootstrap_servers, error.reason)
    except LoginRefused as error:
        return KafkaFacts(kafka.bootstrap_servers, f"it refuses the login: {error.reason}")
    except CertificateUnreadable as error:
        return KafkaFacts(kafka.bootstrap_servers, str(error))
    except (KafkaError, OSError) as error:
        return KafkaFacts(kafka.bootstrap_servers, failure_reason(error))


async def _ask(settings: Settings, now: float, seconds: float, unanswered: dict[str, str]) -> KafkaFacts:
    deadline = time.monotonic() + seconds * 0.8

    async def tried(what: str, answer: Awaitable[Answer], otherwise: Answer) -> Answer:
        try:
            return await asyncio.wait_for(answer, max(0.1, deadline - time.monotonic()))
        except asyncio.TimeoutError:
            unanswered[what] = "no answer in time"
        except (KafkaError, OSError) as error:
            unanswered[what] = failure_reason(error)
        except CertificateUnreadable as error:
            unanswered[what] = str(error)
        return otherwise

    found = await describe(settings)
    options = {**client_options(settings.kafka), "request_timeout_ms": int(seconds * 1000)}
    admin = AIOKafkaAdminClient(**options)
    consumer = AIOKafkaConsumer(enable_auto_commit=False, isolation_level="read_committed", **options)
    try:
        await asyncio.gather(admin.start(), consumer.start())
        brokers = await tried("the cluster", _brokers(admin), 1)
        topics = _without_config(found, settings.kafka.replication_factor)
        configs = await tried("the configuration of topics", _configs(admin, topics), {})
        for name, answer in configs.items():
            if isinstance(answer, str):
                unanswered[f"the configuration of {name}"] = answer
        readable = {name: answer for name, answer in configs.items() if isinstance(answer, dict)}
        topics = [replace(topic, config=readable.get(topic.name, {})) for topic in topics]
        present = {topic.name: topic.partitions for topic in topics if topic.partitions}
        groups = []
        for name, source, _ in _agents(settings):
            if source in present:
                group = ask_group(admin, consumer, name, source, present[source])
                groups.append(await tried(f"group {name}", group, None))
        reports = await tried(
            f"topic {settings.lmcache.topic} of LMCache", ask_reports(settings, now, seconds), None
        )
        tail = await tried("the log", _tail(consumer, settings, present, now, deadline), None)
    finally:
        await asyncio.gather(admin.close(), stop_consumer(consumer), return_exceptions=True)
    reader, reached = tail or (LogReader(now), 0.0)
    return KafkaFacts(
        address=settings.kafka.bootstrap_servers,
        unanswered=unanswered,
        brokers=brokers,
        topics=tuple(topics),
        groups=tuple(
            _with_checkpoints(settings, group, reader, present if tail else {})
            for group in groups
            if group is not None
        ),
        log=reader.log,
        log_seconds=reached,
        newest_record_at=reader.newest_record_at,
        positions=reader.positions,
        saved_topics=reader.saved_topics,
        set_aside=tuple(reader.set_aside.values()),
        reports=reports,
    )


def _with_checkpoints(
    settings: Settings, group: GroupFacts, reader: LogReader, topics_read: Container[str]
) -> GroupFacts:
    checkpoints = {name: saved for name, _, saved in _agents(settings)}[group.name]
    return replace(
        group,
        saved_at=reader.saved_at.get(checkpoints, {}),
        waiting_since=group.waiting_since if checkpoints in topics_read else {},
        # The other agents write a base only now and then, and read what came after it again.
        rare_checkpoints=group.topic != topic_name(settings.kafka, "events"),
    )


def _agents(settings: Settings) -> list[tuple[str, str, str]]:
    """Return (consumer group, topic read, checkpoint topic) of every agent.

    An agent's checkpoint topic carries its name, and names the topic whose partitions it is bound to.
    """
    kafka = settings.kafka
    return [
        (
            f"{kafka.group}.{key.removeprefix(_CHECKPOINTS)}",
            topic_name(kafka, topic.same_partitions_as),
            topic_name(kafka, key),
        )
        for key, topic in catalogue().items()
        if key.startswith(_CHECKPOINTS) and topic.same_partitions_as is not None
    ]


def _without_config(found: list[Found], replication_factor: int) -> list[TopicFacts]:
    return [
        TopicFacts(
            topic.name,
            topic.wanted_partitions,
            topic.partitions,
            catalogue()[topic.key].config,
            hidden=topic.hidden,
            wanted_replication_factor=replication_factor,
            replication_factor=topic.replication_factor,
            in_sync=topic.in_sync,
            id=topic.id,
        )
        for topic in found
    ]


async def _brokers(admin: AIOKafkaAdminClient) -> int:
    return len((await admin.describe_cluster())["brokers"])


async def _configs(admin: AIOKafkaAdminClient, topics: list[TopicFacts]) -> dict[str, dict[str, str] | str]:
    """Return each topic's configuration, or why the broker does not give it."""
    wanted = [ConfigResource(ConfigResourceType.TOPIC, topic.name) for topic in topics if topic.partitions]
    configs: dict[str, dict[str, str] | str] = {}
    for response in await admin.describe_configs(wanted) if wanted else ():
        for code, _, _, name, entries in response.resources:
            configs[name] = for_code(code).__name__ if code else {entry[0]: entry[1] for entry in entries}
    return configs


async def _tail(
    consumer: AIOKafkaConsumer, settings: Settings, present: Mapping[str, int], now: float, deadline: float
) -> tuple[LogReader, float]:
    """Read the ends of the topics; return what they say, and how many seconds of events were read."""
    events, positions, set_aside = (
        topic_name(settings.kafka, key) for key in ("events", "positions", "set_aside")
    )
    since = {events: now - LOG_SECONDS, set_aside: now - SET_ASIDE_SECONDS}
    checkpoints = {saved for _, _, saved in _agents(settings)}
    wanted = [name for name in (events, positions, set_aside, *checkpoints) if name in present]
    partitions = [TopicPartition(name, number) for name in wanted for number in range(present[name])]
    begins = await consumer.beginning_offsets(partitions)
    ends = await consumer.end_offsets(partitions)
    recent = await consumer.offsets_for_times(
        {
            partition: int(since[partition.topic] * 1000)
            for partition in partitions
            if partition.topic in since
        }
    )
    starts = {}
    for partition in partitions:
        start = ends[partition] - (CHECKPOINT_RECORDS if partition.topic in checkpoints else TAIL_RECORDS)
        if partition.topic in since:
            found = recent.get(partition)
            start = ends[partition] if found is None else max(start, found.offset)
        starts[partition] = max(begins[partition], start)
    reader = LogReader(now)
    reached = LOG_SECONDS
    async for partition, record in _records(consumer, starts, ends, deadline):
        at = record.timestamp / 1000
        if partition.topic == positions:
            reader.position(record.value, at)
        elif partition.topic == set_aside:
            reader.set_aside_record(record.value)
        elif partition.topic in checkpoints:
            reader.checkpoint(partition.topic, partition.partition, at, record.key, record.value)
        else:
            if record.offset == starts[partition] and recent[partition].offset < record.offset:
                reached = min(reached, now - at)
            reader.event(record.value, record.headers, at)
    return reader, reached


async def _records(
    consumer: AIOKafkaConsumer,
    starts: Mapping[TopicPartition, int],
    ends: Mapping[TopicPartition, int],
    deadline: float,
) -> AsyncIterator[tuple[TopicPartition, Any]]:
    """Yield the records from `starts` to `ends`. Raises asyncio.TimeoutError."""
    open_ones = {partition for partition, start in starts.items() if start < ends[partition]}
    if not open_ones:
        return
    consumer.assign(sorted(open_ones))
    for partition in open_ones:
        consumer.seek(partition, starts[partition])
    while open_ones:
        if time.monotonic() > deadline:
            raise asyncio.TimeoutError
        batches = await consumer.getmany(*open_ones, timeout_ms=200)
        for partition, records in batches.items():
            for record in records:
                yield partition, record
        for partition in list(open_ones):
            # The position passes the markers of transactions, which are never delivered.
            if await consumer.position(partition) >= ends[partition]:
                open_ones.remove(partition)
                consumer.pause(partition)
