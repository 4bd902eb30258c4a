"""What is in the topic of choices, and what was posted to an index."""

from __future__ import annotations

from typing import Any

import msgspec
from aiokafka import AIOKafkaConsumer, TopicPartition

from connectors.kafka.topics import topic_name
from schemas.choices import ChoiceRecord
from schemas.settings import Kafka

PARTITIONS = 8


async def choices_in(kafka: Kafka) -> list[ChoiceRecord]:
    """Return every record, partition by partition in the order of the log."""
    topic = topic_name(kafka, "choices")
    places = [TopicPartition(topic, number) for number in range(PARTITIONS)]
    found: list[ChoiceRecord] = []
    async with AIOKafkaConsumer(
        bootstrap_servers=kafka.bootstrap_servers, auto_offset_reset="earliest", fetch_max_wait_ms=50
    ) as consumer:
        consumer.assign(places)
        ends = await consumer.end_offsets(places)
        for place in places:
            while await consumer.position(place) < ends[place]:
                for records in (await consumer.getmany(place, timeout_ms=200)).values():
                    found += [msgspec.msgpack.decode(one.value, type=ChoiceRecord) for one in records]
    return found


def post(*choices: tuple[str, list[Any], str], **more: Any) -> dict[str, Any]:
    """Return the body for choices of request id, hashes and replica."""
    return {
        "model_name": "m",
        "choices": [
            {"request_id": request, "block_hashes": hashes, "instance_id": replica}
            for request, hashes, replica in choices
        ],
        **more,
    }
