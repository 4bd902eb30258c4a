"""What a group committed last."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from aiokafka import TopicPartition
from aiokafka.admin import AIOKafkaAdminClient

from connectors.kafka.errors import KAFKA_FAILURES, failure_reason
from connectors.kafka.security import client_options
from pipeline.errors import KafkaUnavailable
from schemas.settings import Kafka

_REQUEST_TIMEOUT_MS = 10_000


@dataclass(frozen=True)
class Committed:
    """The committed offset of a group in a partition; equal to an earlier one if nobody committed since."""

    offset: int = 0
    """0 if there was none."""
    note: str = ""
    """What was committed with it; by transactions here, who wrote them."""


async def committed_before(
    kafka: Kafka, group: str, topic: str, partitions: Sequence[int]
) -> dict[int, Committed]:
    """Return what was committed last for each partition.

    It outlives the checkpoints of its transaction, but not the topic. Raises KafkaUnavailable.
    """
    places = [TopicPartition(topic, number) for number in partitions]
    admin = AIOKafkaAdminClient(request_timeout_ms=_REQUEST_TIMEOUT_MS, **client_options(kafka))
    try:
        await admin.start()
        offsets = await admin.list_consumer_group_offsets(group, partitions=places)
        found = {place.partition: offsets[place] for place in places}
        return {
            number: Committed(one.offset, one.metadata or "") if one.offset >= 0 else Committed()
            for number, one in found.items()
        }
    except KAFKA_FAILURES as error:
        raise KafkaUnavailable(kafka.bootstrap_servers, failure_reason(error)) from error
    finally:
        await admin.close()
