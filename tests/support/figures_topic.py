"""The figures topic read as somebody else would: committed records, of a key the newest version."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from aiokafka import TopicPartition

from connectors.kafka.consumer import started_consumer
from connectors.kafka.topics import topic_name
from schemas.settings import Kafka

Newest = dict[tuple[Any, ...], dict[str, Any]]


async def figures_in(
    kafka: Kafka, keys: dict[str, tuple[str, ...]], plain: Callable[[bytes], bytes] = bytes
) -> list[Newest]:
    """Return what each partition says, by table and key; `keys` are the columns that name rows, by table.

    `plain` gives the JSON of a value.
    """
    topic = topic_name(kafka, "figures")
    found: list[Newest] = []
    async with started_consumer(
        bootstrap_servers=kafka.bootstrap_servers, isolation_level="read_committed", enable_auto_commit=False
    ) as consumer:
        for partition in range(kafka.partitions):
            place = TopicPartition(topic, partition)
            consumer.assign([place])
            await consumer.seek_to_beginning(place)
            end = (await consumer.end_offsets([place]))[place]
            newest: Newest = {}
            while await consumer.position(place) < end:
                for record in (await consumer.getmany(timeout_ms=500)).get(place, []):
                    figure = json.loads(plain(record.value))
                    assert record.key.decode() == figure["replica"]
                    key = (figure["table"], *(figure[column] for column in keys[figure["table"]]))
                    before = newest.get(key)
                    if before is None or figure["version"] >= before["version"]:
                        newest[key] = figure
            found.append(newest)
    return found
