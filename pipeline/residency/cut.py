"""What a checkpoint of a partition of the events topic writes."""

from __future__ import annotations

from dataclasses import dataclass, field

from pipeline.residency.checkpoint.bases import CheckpointRecord
from schemas.rows import Row


@dataclass(frozen=True)
class Cut:
    """One consistent checkpoint: everything that follows from the records before `next_offset`."""

    next_offset: int
    dirty: bool
    """False when there is nothing to commit: no rows of its own, and no new offset."""
    rows: list[Row] = field(default_factory=list)
    checkpoints: list[CheckpointRecord] = field(default_factory=list)
    """Records for the checkpoint topic, same partition number."""
    residency: list[tuple[int, bytes, bytes]] = field(default_factory=list)
    """(shard, key, value) for the residency topic."""
