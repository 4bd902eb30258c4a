"""Memberships in consumer groups, checked and ended without the consumers themselves."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.errors import GroupAuthorizationFailedError
from aiokafka.protocol.group import HeartbeatRequest, LeaveGroupRequest

from pipeline.errors import GroupRefused
from pipeline.kafka.coordinators import asked
from pipeline.kafka.topics import administration
from schemas.settings import Kafka

_NOBODY = (0, "nobody")
"""Generation and member of a heartbeat that changes nothing, but needs the right to Read."""


def group_name(kafka: Kafka, agent: str) -> str:
    """Return the consumer group of an agent, or the one with another suffix of `rights`."""
    return f"{kafka.group}.{agent}"


async def may_join(kafka: Kafka, groups: Iterable[str]) -> None:
    """Raise GroupRefused for the first group that this user may not join.

    A consumer would silently try for ever. Raises KafkaUnavailable, LoginRefused and
    CertificateUnreadable as well.
    """
    async with administration(kafka) as admin:
        for group in groups:
            if await _refused(admin, group):
                raise GroupRefused(group)


async def leave_groups(kafka: Kafka, members: Mapping[str, str]) -> None:
    """Remove members, given by group; those that are no longer members are ignored.

    Raises KafkaUnavailable, LoginRefused and CertificateUnreadable.
    """
    async with administration(kafka) as admin:
        for group, member in members.items():
            await asked(admin, "group", group, LeaveGroupRequest(group, member))


async def _refused(admin: AIOKafkaAdminClient, group: str) -> bool:
    answer = await asked(admin, "group", group, HeartbeatRequest(group, *_NOBODY))
    return answer is GroupAuthorizationFailedError
