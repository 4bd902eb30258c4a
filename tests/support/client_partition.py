"""The partition of a key as a client of Kafka chooses it by default, which knows nothing of kvlens."""

from __future__ import annotations

from aiokafka.partitioner import DefaultPartitioner


def client_partition(key: str, partitions: int) -> int:
    """Return the partition that aiokafka's default partitioner gives a record with this key."""
    partition: int = DefaultPartitioner()(key.encode(), list(range(partitions)), [])
    return partition
