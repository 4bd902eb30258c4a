"""Checks the right to write in transactions before the first one."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from aiokafka.errors import TransactionalIdAuthorizationFailed
from aiokafka.protocol.transaction import EndTxnRequest

from pipeline.errors import TransactionsRefused
from pipeline.kafka.coordinators import asked
from pipeline.kafka.membership import group_name
from pipeline.kafka.topics import Found, administration
from schemas.settings import Kafka

_INPUTS = {"replica": "events", "fleet": "residency"}
"""Agent -> key of the topic that it reads."""
_NOBODYS = (2**63 - 1, 0, False)
"""Producer, epoch and result of an EndTxn for no transaction: it changes nothing, but needs the right."""


def transactional_id(group: str, topic: str, partition: int) -> str:
    """Return the id of the one writer that an agent has for a partition of its input."""
    return f"{group}-{topic}-{partition}"


def writers(kafka: Kafka, agents: Iterable[str], found: Mapping[str, Found]) -> list[str]:
    """Return the ids with which agents may have to commit: one for each partition of their inputs.

    `found` has the topics by their key.
    """
    return [
        transactional_id(group_name(kafka, agent), found[_INPUTS[agent]].name, partition)
        for agent in agents
        for partition in range(found[_INPUTS[agent]].partitions)
    ]


async def may_write(kafka: Kafka, ids: Iterable[str]) -> None:
    """Raise TransactionsRefused for the first transactional id that this user may not write with.

    Raises KafkaUnavailable, LoginRefused and CertificateUnreadable as well.
    """
    async with administration(kafka) as admin:
        for name in ids:
            answer = await asked(admin, "transactional id", name, EndTxnRequest(name, *_NOBODYS))
            if answer is TransactionalIdAuthorizationFailed:
                raise TransactionsRefused(name)
