"""A consumer on a real broker ends in time, also where aiokafka alone would wait for ever."""

from __future__ import annotations

import asyncio
import secrets

from aiokafka import AIOKafkaConsumer, TopicPartition

from connectors.kafka.consumer import STOP_SECONDS, stop_consumer
from connectors.kafka.topics import topic_name
from pipeline.kafka import topics
from pipeline.local.broker.embedded import EmbeddedBroker
from schemas.settings import Kafka, Settings


async def test_it_stops_while_it_leaves_one_assignment_for_another(broker: EmbeddedBroker) -> None:
    kafka = Kafka(bootstrap_servers=broker.bootstrap_servers, topic_prefix=f"consumer_{secrets.token_hex(4)}")
    await topics.apply(Settings(kafka=kafka))
    first, second = (TopicPartition(topic_name(kafka, "residency"), number) for number in range(2))
    for turns in range(4):
        consumer = AIOKafkaConsumer(bootstrap_servers=kafka.bootstrap_servers)
        await consumer.start()
        consumer.assign([first])
        consumer.seek(first, 0)
        while not consumer._fetcher._pending_tasks:  # noqa: ASYNC110 - a fetch is on its way then
            await asyncio.sleep(0.01)
        consumer.assign([second])
        consumer.seek(second, 0)
        for _ in range(turns):
            await asyncio.sleep(0)
        stopping = asyncio.create_task(stop_consumer(consumer))
        # Not wait_for: the cancelling it does is what sets a stop going again that stands still.
        done, _ = await asyncio.wait([stopping], timeout=STOP_SECONDS + 10)
        assert done
        assert consumer._fetcher._fetch_task.done()
