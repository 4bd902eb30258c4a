"""Topics on a real broker: created as the catalogue says, never with another partition count."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable

import msgspec
import pytest
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType

from connectors.kafka.topics import catalogue, topic_name
from pipeline.errors import KafkaUnavailable, TopicMismatch
from pipeline.kafka import topics
from pipeline.local.broker.embedded import EmbeddedBroker
from schemas.settings import Kafka, Settings


def settings(broker: EmbeddedBroker) -> Settings:
    return Settings(
        kafka=Kafka(bootstrap_servers=broker.bootstrap_servers, topic_prefix=f"topics_{secrets.token_hex(4)}")
    )


async def test_topics_are_created_once_with_their_configuration(broker: EmbeddedBroker) -> None:
    ours = settings(broker)
    said: list[str] = []
    created = await topics.apply(ours, said.append)
    assert sorted(created) == sorted(topic_name(ours.kafka, key) for key in catalogue())
    assert len(said) == len(created)
    assert await topics.apply(ours) == []
    for found in await topics.describe(ours):
        assert found.partitions == catalogue()[found.key].partitions
        assert (found.replication_factor, found.in_sync, found.hidden) == (1, 1, False)
        # Without an authorizer everybody may do everything.
        assert found.allowed is not None
        assert {"Read", "Write", "Describe", "DescribeConfigs"} <= set(found.allowed)
    admin = AIOKafkaAdminClient(bootstrap_servers=broker.bootstrap_servers)
    await admin.start()
    try:
        for key, topic in catalogue().items():
            resource = ConfigResource(ConfigResourceType.TOPIC, topic_name(ours.kafka, key))
            [response] = await admin.describe_configs([resource])
            values = {entry[0]: entry[1] for entry in response.resources[0][4]}
            assert {name: values[name] for name in topic.config} == dict(topic.config)
    finally:
        await admin.close()


async def test_a_topic_that_is_made_again_has_another_id(broker: EmbeddedBroker) -> None:
    ours = settings(broker)
    await topics.apply(ours)
    before = {found.key: found.id for found in await topics.describe(ours)}
    assert len(set(before.values())) == len(catalogue())
    admin = AIOKafkaAdminClient(bootstrap_servers=broker.bootstrap_servers)
    await admin.start()
    await admin.delete_topics([topic_name(ours.kafka, "events")])
    while topic_name(ours.kafka, "events") in await admin.list_topics():  # noqa: ASYNC110 - as below
        await asyncio.sleep(0.05)
    await admin.close()
    gone = {found.key: found.id for found in await topics.describe(ours)}
    assert gone == {**before, "events": ""}
    await topics.apply(ours)
    after = {found.key: found.id for found in await topics.describe(ours)}
    assert {key for key in after if after[key] != before[key]} == {"events"}
    assert after["events"]


async def test_other_partition_count_is_refused_and_nothing_is_created(broker: EmbeddedBroker) -> None:
    ours = settings(broker)
    name = topic_name(ours.kafka, "checkpoints_replica")
    admin = AIOKafkaAdminClient(bootstrap_servers=broker.bootstrap_servers)
    await admin.start()
    await admin.create_topics([NewTopic(name, 3, 1)])
    while name not in await admin.list_topics():  # noqa: ASYNC110 - the broker tells only when asked
        await asyncio.sleep(0.05)
    await admin.close()
    with pytest.raises(TopicMismatch, match=rf"{name} has 3 partitions but 8 are needed"):
        await topics.apply(ours)
    assert [found.key for found in await topics.describe(ours) if found.partitions] == ["checkpoints_replica"]


async def test_the_number_of_partitions_is_chosen_before_topics_are_made(broker: EmbeddedBroker) -> None:
    ours = settings(broker)
    many = msgspec.structs.replace(ours, kafka=msgspec.structs.replace(ours.kafka, partitions=12))
    await topics.apply(many)
    assert {found.key: found.partitions for found in await topics.describe(many)} == {
        "events": 12,
        "positions": 1,
        "residency": 12,
        "choices": 12,
        "figures": 12,
        "set_aside": 1,
        "checkpoints_replica": 12,
        "checkpoints_fleet": 12,
    }
    with pytest.raises(TopicMismatch, match=r"has 12 partitions but 8 are needed \(kafka\.partitions\)"):
        await topics.apply(ours)


async def test_unreachable_broker_is_one_clear_line(free_port: Callable[[], int]) -> None:
    address = f"127.0.0.1:{free_port()}"
    with pytest.raises(KafkaUnavailable) as raised:
        await topics.apply(Settings(kafka=Kafka(bootstrap_servers=address)))
    assert address in str(raised.value)
    assert "\n" not in str(raised.value)
