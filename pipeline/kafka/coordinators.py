"""Requests to the broker that coordinates a consumer group, or the transactions of an id."""

from __future__ import annotations

import asyncio
from typing import Any, Literal

from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.errors import (
    GroupAuthorizationFailedError,
    GroupCoordinatorNotAvailableError,
    GroupLoadInProgressError,
    NotCoordinatorForGroupError,
    TransactionalIdAuthorizationFailed,
    for_code,
)

from connectors.kafka.private import ask_node

_TYPES = {"group": 0, "transactional id": 1}
_TRIES = 50
_AGAIN_SECONDS = 0.2
"""A new broker loads what it coordinates first, and creates the topic for that at the first request."""


async def asked(
    admin: AIOKafkaAdminClient, kind: Literal["group", "transactional id"], name: str, request: Any
) -> type[Exception]:
    """Return the error (or NoError) with which the coordinator of the group or the id answers."""
    for _ in range(_TRIES):
        try:
            coordinator = await admin.find_coordinator(name, _TYPES[kind])
        except (GroupAuthorizationFailedError, TransactionalIdAuthorizationFailed) as error:
            return type(error)
        except GroupCoordinatorNotAvailableError:
            await asyncio.sleep(_AGAIN_SECONDS)
            continue
        answer = await ask_node(admin, coordinator, request)
        error_kind: type[Exception] = for_code(answer.error_code)
        # Any coordinator gives these answers, not only those of groups.
        if error_kind not in (GroupLoadInProgressError, NotCoordinatorForGroupError):
            return error_kind
        await asyncio.sleep(_AGAIN_SECONDS)
    raise GroupCoordinatorNotAvailableError(name)
