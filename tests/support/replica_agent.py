"""A partition of the replica agent without its worker: its log, its state, and what was committed of it."""

from __future__ import annotations

from typing import Any, TypeVar

import msgspec

from pipeline.residency.cut import Cut
from pipeline.residency.partition import PartitionState
from pipeline.residency.source import SourceResidency
from schemas.pool_checkpoints import FlowState
from schemas.residency import ResidencyChanges, ResidencyRecord, SourceChanges
from schemas.rows import FlowRow
from schemas.settings import Worker

AnyRow = TypeVar("AnyRow")


class ReplicaAgent:
    """Applies one record after the other; whoever goes on from its checkpoints has the same log."""

    def __init__(self, settings: Worker | None = None, *, shards: int = 1) -> None:
        self.settings = settings or Worker()
        self.shards = shards
        self.state = PartitionState(0, self.settings, shards=shards)
        self.log: list[Any] = []
        self.latest: dict[bytes, bytes] = {}
        """The checkpoint topic, compacted."""
        self._flow: dict[tuple[Any, ...], FlowRow] = {}
        """What cuts wrote last, by what identifies a row."""

    def apply(self, *records: Any) -> None:
        for one in records:
            self.state.apply(len(self.log), one)
            self.log.append(one)

    def cut(self, at: float) -> Cut:
        """Cut, and commit the checkpoint."""
        cut = self.state.cut(at)
        for key, value in cut.checkpoints:
            if value is None:
                self.latest.pop(key, None)
            else:
                self.latest[key] = value
        for row in rows_of(cut, FlowRow):
            self._flow[row.window, row.replica, row.dp_rank, row.medium, row.group_idx] = row
        return cut

    def flow(self, replica: str = "r") -> dict[tuple[str, int], FlowState]:
        """Cut, and return what came and went per (medium, group_idx) in all windows, without lifetimes."""
        self.cut(0.0)
        counters = FlowState.__struct_fields__[:-1]
        found: dict[tuple[str, int], FlowState] = {}
        for row in self._flow.values():
            if row.replica == replica:
                sums = found.setdefault((row.medium, row.group_idx), FlowState())
                for name in counters:
                    setattr(sums, name, getattr(sums, name) + getattr(row, name))
        return found

    def killed(self) -> None:
        """Let another one go on from what was committed; it applies once more what that lacks."""
        self.state = PartitionState.restore(0, self.settings, shards=self.shards, latest=self.latest)
        for offset in range(self.state.next_offset, len(self.log)):
            self.state.apply(offset, self.log[offset])

    def moved(self, at: float) -> Cut:
        """Cut for another one that goes on at once."""
        self.state.leaves()
        cut = self.cut(at)
        self.killed()
        return cut

    def source(self, replica: str = "r") -> SourceResidency:
        return self.state.sources[replica, 0]


def residency_of(cut: Cut) -> list[ResidencyRecord]:
    """Return what a cut tells the residency topic."""
    return [msgspec.msgpack.decode(value, type=ResidencyRecord) for _, _, value in cut.residency]


def sources_of(cut: Cut) -> list[SourceChanges]:
    return [source for record in residency_of(cut) for source in record.sources]


def changes_of(cut: Cut) -> list[ResidencyChanges]:
    return [part for source in sources_of(cut) for part in source.changes]


def rows_of(cut: Cut, kind: type[AnyRow]) -> list[AnyRow]:
    return [row for row in cut.rows if isinstance(row, kind)]


def held_in(source: SourceResidency, medium: str, group: int = 0) -> dict[int, int]:
    """Return the resident blocks of a pool and how many copies there are of each."""
    source.pools.settle()
    return {
        block: copies
        for pool in source.pools.counted
        if (pool.head.medium, pool.head.group_idx) == (medium, group)
        for block, copies in pool.copies.live()[["hash", "copies"]].tolist()
    }
