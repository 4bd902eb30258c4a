"""A partition that an agent of a worker owns, without Kafka."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from pipeline.worker.checkpoint.log import CheckpointLog
from pipeline.worker.partition import OwnedPartition
from pipeline.worker.roles.role import Role
from pipeline.worker.telemetry import WorkerMetrics
from schemas.settings import Kafka


def owned_partition(
    role: Role[Any, Any],
    metrics: WorkerMetrics | None = None,
    partition: int = 0,
    latest: Mapping[bytes, bytes] = MappingProxyType({}),
    **more: Any,
) -> OwnedPartition[Any, Any]:
    """Return the partition as it is with these checkpoints; `more` as in `OwnedPartition`."""
    log = CheckpointLog(Kafka(), group="g", topic=role.topic, partition=partition)
    known: dict[str, Any] = {"heard": 0, "committed": 0, "topics": {}, "fetched": lambda: -1} | more
    return OwnedPartition(role, log, role.restore(partition, latest), metrics or WorkerMetrics(), **known)
