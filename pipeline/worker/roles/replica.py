"""The replica agent: it keeps residency per source."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from connectors.kafka.encoding import Prefixes
from pipeline.reading.events_reader import EventsReader
from pipeline.reading.numbered import Readable
from pipeline.residency.cut import Cut
from pipeline.residency.partition import PartitionState
from pipeline.worker.checkpoint.record import Record
from pipeline.worker.roles.residency_topic import ResidencyTopic
from pipeline.worker.roles.role import Role
from schemas.settings import Settings


class ReplicaRole(Role[Readable, Cut]):
    """Reads events; writes changes of residency, by shard of the hash space."""

    name: ClassVar[str] = "replica"
    committed: ClassVar[bool] = False
    unsaved_bytes: ClassVar[int] = 64 << 20
    chunk_bytes: ClassVar[int] = 1 << 20

    def __init__(
        self,
        settings: Settings,
        *,
        shards: int,
        partitions: int | None = None,
        prefixes: Prefixes | None = None,
    ) -> None:
        """`shards` is the partition count of its output, `partitions` that of its input if records are to be
        checked for the wrong partition; `prefixes`: of schemas in a registry."""
        super().__init__(settings.kafka, EventsReader(settings))
        self._worker = settings.worker
        self._shards = shards
        self._partitions = partitions
        self._residency = ResidencyTopic(settings.kafka, prefixes)

    @property
    def saved_topics(self) -> frozenset[str]:
        return frozenset({self.topic, self._residency.name})

    def restore(self, partition: int, latest: Mapping[bytes, bytes]) -> PartitionState:
        return PartitionState.restore(
            partition, self._worker, shards=self._shards, latest=latest, partitions=self._partitions
        )

    def outputs(self, cut: Cut) -> list[Record]:
        return [self._residency.packed(shard, key, value) for shard, key, value in cut.residency]
