"""Asks for topics by name, which distinguishes a missing topic, a hidden one and a missing right."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from aiokafka.client import AIOKafkaClient
from aiokafka.errors import TopicAuthorizationFailedError

from connectors.kafka.errors import RightMissing, TopicHidden, TopicMissing
from connectors.kafka.metadata_request import NOT_TOLD, MetadataRequest

_BITS = {
    "Read": 3,
    "Write": 4,
    "Create": 5,
    "Delete": 6,
    "Describe": 8,
    "DescribeConfigs": 10,
}
"""Kafka's numbers of operations: the bits that say what a user may do."""


@dataclass(frozen=True)
class TopicMetadata:
    """What the cluster says about a topic; all numbers are 0 if it does not exist, or may not be seen."""

    name: str
    """With prefix."""
    hidden: bool
    """This user may not Describe it, so it cannot know whether it exists."""
    partitions: int
    replication_factor: int
    """Copies of each partition, the fewest."""
    in_sync: int
    """Of these, how many have all acknowledged records, the fewest."""
    allowed: tuple[str, ...] | None
    """Operations that this user may do; None where the broker does not say."""
    id: str
    """Unique, even among topics of this name that are made later; empty if the broker does not report it."""

    def require(self, *operations: str) -> None:
        """Raise TopicHidden, TopicMissing, or RightMissing for the first operation that is not allowed."""
        if self.hidden:
            raise TopicHidden(self.name)
        if not self.partitions:
            raise TopicMissing(self.name)
        for operation in operations:
            if self.allowed is not None and operation not in self.allowed:
                raise RightMissing(self.name, operation)


async def topic_metadata(client: AIOKafkaClient, names: Iterable[str]) -> dict[str, TopicMetadata]:
    """Return the metadata of these topics; asking creates none. Raises KAFKA_FAILURES."""
    wanted = list(names)
    answer = (await client.send(client.get_random_node(), MetadataRequest(wanted))).to_object()
    found = {name: TopicMetadata(name, False, 0, 0, 0, None, "") for name in wanted}
    for topic in answer["topics"]:
        name, partitions = topic["topic"], topic["partitions"]
        found[name] = TopicMetadata(
            name,
            topic["error_code"] == TopicAuthorizationFailedError.errno,
            len(partitions),
            min((len(partition["replicas"]) for partition in partitions), default=0),
            min((len(partition["isr"]) for partition in partitions), default=0),
            _operations(topic.get("authorized_operations", NOT_TOLD)),
            topic.get("topic_id", ""),
        )
    return found


def _operations(bits: int) -> tuple[str, ...] | None:
    if bits == NOT_TOLD:
        return None
    return tuple(operation for operation, bit in _BITS.items() if bits >> bit & 1)
