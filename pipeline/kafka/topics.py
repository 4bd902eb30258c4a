"""Topics as `schemas/topics.toml` defines them: created once, then only checked."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Container, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass

from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.errors import TopicAlreadyExistsError, TopicAuthorizationFailedError, for_code

from connectors.kafka.errors import (
    KAFKA_FAILURES,
    BrokerUnreachable,
    RightMissing,
    TopicHidden,
    failure_reason,
)
from connectors.kafka.private import client_of
from connectors.kafka.reach import reach
from connectors.kafka.security import client_options
from connectors.kafka.topic_metadata import TopicMetadata, topic_metadata
from connectors.kafka.topics import catalogue, topic_name
from pipeline.errors import KafkaUnavailable, TopicMismatch, TopicRefused
from pipeline.kafka.rights import on_topics, roles
from schemas.settings import Kafka, Settings

_REQUEST_TIMEOUT_MS = 15_000
_VISIBLE_SECONDS = 60.0


@dataclass(frozen=True)
class Found(TopicMetadata):
    """A topic of the catalogue and what the cluster has of it."""

    key: str
    wanted_partitions: int

    @property
    def wanted_by(self) -> str:
        """Where it is defined how many partitions it should have."""
        return "kafka.partitions" if catalogue()[self.key].shared else "schemas/topics.toml"


async def describe(settings: Settings) -> list[Found]:
    """Return what the cluster has of each topic of the catalogue.

    Raises KafkaUnavailable, LoginRefused and CertificateUnreadable.
    """
    async with administration(settings.kafka) as admin:
        return await _found(admin, settings.kafka)


async def apply(settings: Settings, progress: Callable[[str], None] | None = None) -> list[str]:
    """Create the topics that are missing and return their names; `progress` gets one line a topic.

    An existing topic is left as it is. Raises TopicMismatch when its partition count differs (nothing is
    created then), TopicHidden, RightMissing, KafkaUnavailable, LoginRefused, CertificateUnreadable, and
    TopicRefused.
    """
    say = progress or (lambda line: None)
    created = []
    async with administration(settings.kafka) as admin:
        found = await _found(admin, settings.kafka)
        check(found)
        for topic in found:
            if topic.hidden:
                raise TopicHidden(topic.name)
        for topic in found:
            if topic.partitions:
                say(f"topic {topic.name} exists")
            elif await _create(admin, topic, settings.kafka.replication_factor):
                say(f"topic {topic.name} created, {topic.wanted_partitions} partitions")
                created.append(topic.name)
        await _visible(admin, settings.kafka)
    return created


def require_rights(found: Sequence[Found], kafka: Kafka, commands: Container[str]) -> None:
    """Raise TopicHidden, TopicMissing or RightMissing for what one of the roles lacks of the topics."""
    all_roles = roles(catalogue(), topic_prefix=kafka.topic_prefix, group=kafka.group)
    for role in all_roles:
        if role.command in commands:
            needed = on_topics(role)
            for topic in found:
                if topic.name in needed:
                    topic.require(*needed[topic.name])


def check(found: list[Found]) -> None:
    """Raise TopicMismatch when the partition count of an existing topic does not fit its state."""
    partitions = {topic.key: topic.partitions or topic.wanted_partitions for topic in found}
    for topic in found:
        if not topic.partitions:
            continue
        twin = catalogue()[topic.key].same_partitions_as
        if twin is not None and topic.partitions != partitions[twin]:
            raise TopicMismatch(topic.name, topic.partitions, partitions[twin], f"as many as {twin}")
        if twin is None and topic.partitions != topic.wanted_partitions:
            raise TopicMismatch(topic.name, topic.partitions, topic.wanted_partitions, topic.wanted_by)


async def _create(admin: AIOKafkaAdminClient, topic: Found, replication_factor: int) -> bool:
    """Return False when another process created it first."""
    request = NewTopic(
        topic.name,
        topic.wanted_partitions,
        replication_factor,
        topic_configs=dict(catalogue()[topic.key].config),
    )
    response = await admin.create_topics([request])
    for _, code, *message in response.topic_errors:
        if code == TopicAlreadyExistsError.errno:
            return False
        if code == TopicAuthorizationFailedError.errno:
            raise RightMissing(topic.name, "Create")
        if code:
            reason = message[0] if message and message[0] else for_code(code).__name__
            raise TopicRefused(topic.name, reason)
    return True


async def _visible(admin: AIOKafkaAdminClient, kafka: Kafka) -> None:
    """Wait until brokers know new topics, a moment after the controller made them."""
    deadline = time.monotonic() + _VISIBLE_SECONDS
    while missing := [topic.name for topic in await _found(admin, kafka) if not topic.partitions]:
        if time.monotonic() > deadline:
            raise TopicRefused(missing[0], f"not visible {_VISIBLE_SECONDS:.0f} s after it was created")
        await asyncio.sleep(0.05)


async def _found(admin: AIOKafkaAdminClient, kafka: Kafka) -> list[Found]:
    names = {key: topic_name(kafka, key) for key in catalogue()}
    metadata = await topic_metadata(client_of(admin), names.values())
    return [
        Found(**vars(metadata[names[key]]), key=key, wanted_partitions=topic.partitions_for(kafka))
        for key, topic in catalogue().items()
    ]


@asynccontextmanager
async def administration(kafka: Kafka) -> AsyncIterator[AIOKafkaAdminClient]:
    """Yield an admin client; raises KafkaUnavailable, LoginRefused, CertificateUnreadable."""
    try:
        await reach(kafka)
    except BrokerUnreachable as error:
        raise KafkaUnavailable(error.bootstrap_servers, error.reason) from error
    admin = AIOKafkaAdminClient(request_timeout_ms=_REQUEST_TIMEOUT_MS, **client_options(kafka))
    try:
        await admin.start()
        yield admin
    except KAFKA_FAILURES as error:
        raise KafkaUnavailable(kafka.bootstrap_servers, failure_reason(error)) from error
    finally:
        await admin.close()
