"""State of one partition of the events topic: all its sources, and what a checkpoint of them holds."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import msgspec

from pipeline.residency.changes import by_shard
from pipeline.residency.snapshot import SourceSnapshots, restore
from pipeline.residency.source import SourceResidency, new_head
from schemas.checkpoints import HEAD, META_KEY, PartitionMeta
from schemas.events import EventsRecord
from schemas.hashes import HASH_BYTES
from schemas.residency import ResidencyRecord, SourceChanges
from schemas.rows import Row
from schemas.settings import Worker

RECORD_BYTES = 1 << 20
"""Packed changes per residency record; a single source's may exceed it, far below the topic's 8 MB bound."""
BYTES_PER_CHANGE = 35
"""Hash, kind, time, block size, tokens stored before, and of fills the chain's root and depth."""

_encode = msgspec.msgpack.Encoder().encode


@dataclass(frozen=True)
class Cut:
    """One consistent checkpoint: everything that follows from the records before `next_offset`."""

    next_offset: int
    dirty: bool
    """False when there is nothing to commit: no rows of its own, and no new offset."""
    rows: list[Row] = field(default_factory=list)
    checkpoints: list[tuple[bytes, bytes]] = field(default_factory=list)
    """(key, value) for the checkpoint topic, same partition number."""
    residency: list[tuple[int, bytes, bytes]] = field(default_factory=list)
    """(shard, key, value) for the residency topic."""


class PartitionState:
    """Applies events records in offset order and cuts checkpoints.

    Reads no clock and does no IO: `now` is given, and the same records give the same rows however often
    the process was restarted between them.
    """

    def __init__(self, partition: int, settings: Worker, *, shards: int) -> None:
        self.partition = partition
        self.next_offset = 0
        self.sources: dict[tuple[str, int], SourceResidency] = {}
        self._settings = settings
        self._shards = shards
        self._snapshots: dict[tuple[str, int], SourceSnapshots] = {}
        self._saved_offset = 0
        self._announced = 0
        """Another state has committed everything before this offset."""

    def announced(self, offset: int) -> None:
        """Commit nothing before this offset: another state has, whose checkpoints are lost.

        What was said of residency until then is not said again; rows are written again and are the same.
        """
        self._announced = offset

    def apply(self, offset: int, record: EventsRecord) -> None:
        """Apply the record at `offset`."""
        key = (record.replica, record.dp_rank)
        source = self.sources.get(key)
        if source is None:
            source = self.sources[key] = SourceResidency(new_head(*key), self._settings)
            self._snapshots[key] = SourceSnapshots(source)
        source.apply(record, offset)
        self._advance(offset)

    def skip(self, offset: int) -> None:
        """Leave out the record at `offset`, which could not be decoded."""
        self._advance(offset)

    def troubles(self) -> dict[str, int]:
        """Return how many sources are partial, degraded, disconnected or drifting, as far as is known.

        Leaves out sources that are no longer read. A source without a first batch counts neither as partial
        nor as degraded.
        """
        read = [source for source in self.sources.values() if source.head.closed_reason in ("", "silent")]
        trusts = [
            source.overall_trust().trust for source in read if source.opened and not source.head.closed_at
        ]
        return {
            "partial": trusts.count("partial"),
            "degraded": trusts.count("degraded"),
            "disconnected": sum(source.head.connectivity.disconnected_from is not None for source in read),
            "drifting": sum(source.head.drift.since is not None for source in read),
        }

    def cut(self, now: float) -> Cut:
        """Return what must be saved; from here on it counts as saved.

        Rows go to the tables first; then checkpoints, residency and offset commit together. If that
        fails, this state must be dropped.
        """
        rows: list[Row] = []
        checkpoints: list[tuple[bytes, bytes]] = []
        changed: list[SourceResidency] = []
        committed_before = self.next_offset < self._announced
        for key, source in self.sources.items():
            source_rows = source.windows.take(now)
            rows += source_rows
            if committed_before:
                source.take_changes()
                continue
            if not source.unsaved and not source_rows:
                continue
            changed.append(source)
            checkpoints += self._snapshots[key].cut()
            source.unsaved = False
        if committed_before:
            return Cut(self.next_offset, dirty=False, rows=rows)
        if not checkpoints and self.next_offset == self._saved_offset:
            return Cut(self.next_offset, dirty=False)
        self._saved_offset = self.next_offset
        checkpoints.append((META_KEY, _encode(PartitionMeta(self.next_offset))))
        return Cut(
            self.next_offset,
            dirty=True,
            rows=rows,
            checkpoints=checkpoints,
            residency=self._residency(changed),
        )

    def _advance(self, offset: int) -> None:
        self.next_offset = offset + 1
        if self.next_offset == self._announced:
            for source in self.sources.values():
                source.take_changes()

    def _residency(self, sources: Iterable[SourceResidency]) -> list[tuple[int, bytes, bytes]]:
        """Return the changes of these sources, joined per shard into records of bounded size."""
        key = str(self.partition).encode()
        waiting: dict[int, list[SourceChanges]] = {}
        sizes: dict[int, int] = {}
        records: list[tuple[int, bytes, bytes]] = []

        def close(shard: int) -> None:
            record = ResidencyRecord(self.partition, shard, self.next_offset, waiting.pop(shard))
            records.append((shard, key, _encode(record)))

        for source in sources:
            for life in source.take_changes():
                for shard, changes in by_shard(life.changes, self._shards):
                    size = sum(len(part.hashes) for part in changes) * BYTES_PER_CHANGE // HASH_BYTES
                    if shard in waiting and sizes[shard] + size > RECORD_BYTES:
                        close(shard)
                    if shard not in waiting:
                        waiting[shard], sizes[shard] = [], 0
                    sizes[shard] += size
                    waiting[shard].append(
                        SourceChanges(
                            source.head.replica,
                            life.model,
                            life.hash_domain,
                            source.head.dp_rank,
                            life.incarnation,
                            life.trust,
                            changes,
                        )
                    )
        for shard in sorted(waiting):
            close(shard)
        return records

    @classmethod
    def restore(
        cls, partition: int, settings: Worker, *, shards: int, latest: Mapping[bytes, bytes]
    ) -> PartitionState:
        """Return the state that the last checkpoint saved; a new one when there is none.

        `latest` holds the last committed value of every key of the checkpoint partition. Raises
        CheckpointCorrupt when records are missing.
        """
        state = cls(partition, settings, shards=shards)
        meta = latest.get(META_KEY)
        if meta is None:
            return state
        state.next_offset = state._saved_offset = msgspec.msgpack.decode(meta, type=PartitionMeta).next_offset
        for key, value in latest.items():
            if key != META_KEY and msgspec.msgpack.decode(key)[2] == HEAD:
                source = restore(value, latest, settings)
                name = (source.head.replica, source.head.dp_rank)
                state.sources[name] = source
                state._snapshots[name] = SourceSnapshots(source)
        return state
