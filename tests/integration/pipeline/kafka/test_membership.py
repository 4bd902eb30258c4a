"""A member that died is taken out of its group by name; nobody else is."""

from __future__ import annotations

import asyncio
import secrets
import time

from aiokafka.admin import AIOKafkaAdminClient

from connectors.kafka.consumer import started_consumer
from pipeline.kafka import topics
from pipeline.kafka.membership import leave_groups, may_join
from pipeline.local.broker.embedded import EmbeddedBroker
from schemas.settings import Kafka, Settings


async def members(kafka: Kafka, group: str) -> set[str]:
    admin = AIOKafkaAdminClient(bootstrap_servers=kafka.bootstrap_servers)
    await admin.start()
    try:
        (answer,) = await admin.describe_consumer_groups([group])
        return {member[0] for described in answer.groups for member in described[5]}
    finally:
        await admin.close()


async def test_a_member_is_taken_out_by_name_and_another_one_stays(broker: EmbeddedBroker) -> None:
    name = f"member-{secrets.token_hex(4)}"
    kafka = Kafka(bootstrap_servers=broker.bootstrap_servers, topic_prefix=name)
    await topics.apply(Settings(kafka=kafka))
    await may_join(kafka, [name])
    async with started_consumer(
        f"{name}.events.v1",
        bootstrap_servers=kafka.bootstrap_servers,
        group_id=name,
        session_timeout_ms=30_000,
        heartbeat_interval_ms=10_000,
    ) as consumer:
        deadline = time.monotonic() + 60
        while not consumer.assignment():
            assert time.monotonic() < deadline
            await asyncio.sleep(0.05)
        [member] = await members(kafka, name)
        await leave_groups(kafka, {name: "nobody"})
        assert await members(kafka, name) == {member}
        await leave_groups(kafka, {name: member})
        assert member not in await members(kafka, name)
