"""Asks how far the topic of LMCache's servers is read."""

from __future__ import annotations

import asyncio

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.errors import TopicAuthorizationFailedError

from connectors.kafka.consumer import stop_consumer
from connectors.kafka.private import client_of
from connectors.kafka.security import client_options
from connectors.kafka.topic_metadata import topic_metadata
from pipeline.doctor.facts import ReportsFacts
from schemas.settings import Settings

LATE_SECONDS = 60.0
"""A connector reads and commits within seconds, also of partitions that the topic has just got."""


async def ask_reports(settings: Settings, now: float, seconds: float) -> ReportsFacts | None:
    """Return how much is unread; None where no such topic is set.

    Raises KAFKA_FAILURES, CertificateUnreadable.
    """
    topic, group = settings.lmcache.topic, settings.lmcache.group
    if not topic:
        return None
    options = {**client_options(settings.lmcache_login[1]), "request_timeout_ms": int(seconds * 1000)}
    admin = AIOKafkaAdminClient(**options)
    consumer = AIOKafkaConsumer(enable_auto_commit=False, **options)
    try:
        await asyncio.gather(admin.start(), consumer.start())
        found = (await topic_metadata(client_of(consumer), [topic]))[topic]
        if found.hidden:
            raise TopicAuthorizationFailedError(topic)
        if not found.partitions:
            return ReportsFacts(topic, group, {})
        places = [TopicPartition(topic, number) for number in range(found.partitions)]
        begins = await consumer.beginning_offsets(places)
        ends = await consumer.end_offsets(places)
        recent = await consumer.offsets_for_times(dict.fromkeys(places, int((now - LATE_SECONDS) * 1000)))
        committed = await admin.list_consumer_group_offsets(group)
    finally:
        await asyncio.gather(admin.close(), stop_consumer(consumer), return_exceptions=True)
    late = {}
    for place in places:
        done = max(committed[place].offset if place in committed else 0, begins[place])
        recent_from = ends[place] if (first := recent.get(place)) is None else first.offset
        late[place.partition] = max(0, recent_from - done)
    return ReportsFacts(topic, group, late)
