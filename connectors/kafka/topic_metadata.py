"""Topics asked for by name, so that one that does not exist and one that this user may not see differ."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from aiokafka.client import AIOKafkaClient
from aiokafka.errors import TopicAuthorizationFailedError
from aiokafka.protocol.metadata import MetadataRequest

from connectors.kafka.errors import TopicHidden, TopicMissing


@dataclass(frozen=True)
class TopicMetadata:
    """What the cluster tells of a topic; all 0 when it does not exist, or may not be seen."""

    name: str
    """With prefix."""
    hidden: bool
    """This user may not Describe it; nobody tells it whether it exists."""
    partitions: int
    replication_factor: int
    """Copies of each partition, the fewest."""
    in_sync: int
    """Of these, how many have all acknowledged records, the fewest."""

    def require(self) -> None:
        """Raises TopicHidden or TopicMissing when it is not there for this user."""
        if self.hidden:
            raise TopicHidden(self.name)
        if not self.partitions:
            raise TopicMissing(self.name)


async def topic_metadata(client: AIOKafkaClient, names: Iterable[str]) -> dict[str, TopicMetadata]:
    """Return what the cluster has of these topics; none is made by that. Raises KAFKA_FAILURES."""
    wanted = list(names)
    request = MetadataRequest(wanted, allow_auto_topic_creation=False)
    answer = (await client.send(client.get_random_node(), request)).to_object()
    found = {name: TopicMetadata(name, False, 0, 0, 0) for name in wanted}
    for topic in answer["topics"]:
        name, partitions = topic["topic"], topic["partitions"]
        found[name] = TopicMetadata(
            name,
            topic["error_code"] == TopicAuthorizationFailedError.errno,
            len(partitions),
            min((len(partition["replicas"]) for partition in partitions), default=0),
            min((len(partition["isr"]) for partition in partitions), default=0),
        )
    return found
