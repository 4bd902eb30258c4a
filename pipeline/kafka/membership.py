"""Memberships in consumer groups, asked and ended beside the consumers themselves."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from typing import Any

from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.errors import (
    GroupAuthorizationFailedError,
    GroupCoordinatorNotAvailableError,
    GroupLoadInProgressError,
    NotCoordinatorForGroupError,
    for_code,
)
from aiokafka.protocol.group import HeartbeatRequest, LeaveGroupRequest

from pipeline.errors import GroupRefused
from pipeline.kafka.topics import administration
from schemas.settings import Kafka

_NOBODY = (0, "nobody")
"""Generation and member of a heartbeat that changes nothing, but needs the right to Read."""
_TRIES = 50
_AGAIN_SECONDS = 0.2
"""A broker that starts loads its groups first, and makes the topic for them when it meets the first one."""


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
            await _asked(admin, group, LeaveGroupRequest(group, member))


async def _refused(admin: AIOKafkaAdminClient, group: str) -> bool:
    return await _asked(admin, group, HeartbeatRequest(group, *_NOBODY)) is GroupAuthorizationFailedError


async def _asked(admin: AIOKafkaAdminClient, group: str, request: Any) -> type[Exception]:
    """Return the error (or NoError) with which the group's coordinator answers."""
    for _ in range(_TRIES):
        try:
            coordinator = await admin.find_coordinator(group)
        except GroupAuthorizationFailedError as error:
            return type(error)
        except GroupCoordinatorNotAvailableError:
            await asyncio.sleep(_AGAIN_SECONDS)
            continue
        answer = await admin._send_request_to_node(coordinator, request)
        error_kind: type[Exception] = for_code(answer.error_code)
        if error_kind not in (GroupLoadInProgressError, NotCoordinatorForGroupError):
            return error_kind
        await asyncio.sleep(_AGAIN_SECONDS)
    raise GroupCoordinatorNotAvailableError(group)
