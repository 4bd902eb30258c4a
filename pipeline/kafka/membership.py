"""Memberships in consumer groups, asked and ended beside the consumers themselves."""

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
    """Return the consumer group of an agent."""
    return f"{kafka.group}.{agent}"


async def may_join(kafka: Kafka, groups: Iterable[str]) -> None:
    """Raises GroupRefused for the first group that this user may not join.

    A consumer would try for ever, and say nothing. Raises KafkaUnavailable, LoginRefused and
    CertificateUnreadable as well.
    """
    async with administration(kafka) as admin:
        for group in groups:
            if await _refused(admin, group):
                raise GroupRefused(group)


async def leave_groups(kafka: Kafka, members: Mapping[str, str]) -> None:
    """Take members (by their group) out; whoever is none any more is left alone.

    Raises KafkaUnavailable, LoginRefused and CertificateUnreadable.
    """
    async with administration(kafka) as admin:
        for group, member in members.items():
            await asked(admin, "group", group, LeaveGroupRequest(group, member))


async def _refused(admin: AIOKafkaAdminClient, group: str) -> bool:
    answer = await asked(admin, "group", group, HeartbeatRequest(group, *_NOBODY))
    return answer is GroupAuthorizationFailedError
