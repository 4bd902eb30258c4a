"""The fleet agent: it follows who holds and who lost which block, per shard of the hash space."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from connectors.kafka.encoding import Prefixes
from pipeline.fleet.residency_reader import ResidencyReader
from pipeline.fleet.state import Cut, FleetState
from pipeline.worker.checkpoint.record import Record
from pipeline.worker.roles.residency_topic import ResidencyTopic
from pipeline.worker.roles.role import Role
from schemas.residency import ResidencyRecord
from schemas.settings import Settings


class FleetRole(Role[ResidencyRecord, Cut]):
    """Reads changes of residency; sends the other shards what it decided."""

    name: ClassVar[str] = "fleet"
    committed: ClassVar[bool] = True
    # It does not keep changes, only what follows from them.
    unsaved_bytes: ClassVar[int] = 512 << 20
    # Few large records: more of them at once would save nothing.
    chunk_bytes: ClassVar[int] = 256 << 10

    def __init__(self, settings: Settings, *, shards: int, prefixes: Prefixes | None = None) -> None:
        """`shards` is the partition count of its input; `prefixes`: of schemas in a registry."""
        super().__init__(settings.kafka, ResidencyReader(settings.kafka))
        self._settings = settings
        self._shards = shards
        self._residency = ResidencyTopic(settings.kafka, prefixes)

    def restore(self, partition: int, latest: Mapping[bytes, bytes]) -> FleetState:
        worker = self._settings.worker
        return FleetState(
            partition,
            self._settings.fleet,
            carry_seconds=worker.idle_carry_seconds,
            shards=self._shards,
            forget_seconds=worker.forget_seconds,
            latest=latest,
        )

    def outputs(self, cut: Cut) -> list[Record]:
        return [
            self._residency.decided(shard, said)
            for said in cut.decisions
            for shard in range(self._shards)
            if shard != said.shard
        ]
