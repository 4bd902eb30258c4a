"""Rights given and taken on a broker that checks them: Kafka's own tool for it is in no jar of the lock."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.protocol.admin import CreateAclsRequest, DeleteAclsRequest

from connectors.kafka.security import client_options
from pipeline.kafka.rights import Right
from schemas.settings import Kafka

# Numbers of Kafka's protocol.
_RESOURCES = {"topic": 2, "group": 3, "transactional id": 5}
_OPERATIONS = {"Read": 3, "Write": 4, "Create": 5, "Delete": 6, "Describe": 8, "DescribeConfigs": 10}
_LITERAL, _PREFIXED, _ALLOW = 3, 4, 3


class Acls:
    """The rights of users, by a login that may change them."""

    def __init__(self, login: Kafka) -> None:
        self._login = login

    def allow(self, user: str, rights: Iterable[Right]) -> None:
        answers = self._asked([CreateAclsRequest(*_as_acl(user, right)) for right in rights])
        assert {code for answer in answers for code, _ in answer.creation_responses} == {0}

    def take(self, user: str, right: Right) -> None:
        [answer] = self._asked([DeleteAclsRequest(*_as_acl(user, right))])
        [(code, _, [_])] = answer.filter_responses
        assert code == 0

    @contextmanager
    def without(self, user: str, right: Right) -> Iterator[None]:
        """Inside, the user lacks the right."""
        self.take(user, right)
        try:
            yield
        finally:
            self.allow(user, [right])

    def _asked(self, requests: list[Any]) -> list[Any]:
        return asyncio.run(self._ask(requests))

    async def _ask(self, requests: list[Any]) -> list[Any]:
        admin = AIOKafkaAdminClient(**client_options(self._login))
        await admin.start()
        try:
            return [await admin._send_request(request) for request in requests]
        finally:
            await admin.close()


def _as_acl(user: str, right: Right) -> tuple[Any, ...]:
    pattern = _PREFIXED if right.prefix else _LITERAL
    kind, operation = _RESOURCES[right.resource], _OPERATIONS[right.operation]
    return (kind, right.name, pattern, f"User:{user}", "*", operation, _ALLOW)
