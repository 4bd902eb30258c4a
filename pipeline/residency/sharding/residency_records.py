"""The residency records of a checkpoint: changes of all sources, joined per shard, each of bounded size."""

from __future__ import annotations

import msgspec

from pipeline.residency.session_changes import SessionChanges
from pipeline.residency.sharding.by_shard import by_shard
from pipeline.residency.source import SourceResidency
from schemas.hashes import HASH_BYTES
from schemas.residency import ResidencyChanges, ResidencyRecord, SourceChanges

RECORD_BYTES = 1 << 20
"""Packed changes per record, far below the topic's 8 MiB bound."""
BYTES_PER_CHANGE = 43
"""Hash, kind, time, block size, tokens stored before, and of fills the chain's root and depth, and the last
block of its run."""
BYTES_PER_PART = 128
"""Names of columns and all else that a part, or the head of a source's parts, has apart from changes and
texts."""
MOST_CHANGES = RECORD_BYTES // BYTES_PER_CHANGE
"""Changes of one pool in one record."""

_encode = msgspec.msgpack.Encoder().encode


class ResidencyRecords:
    """Records that are not full yet, one for each shard, and those that are."""

    def __init__(self, partition: int, next_offset: int, shards: int, *, partitions: int = 0) -> None:
        """`partitions`: how many the events topic has; 0 where this one is the whole log."""
        self._partition = partition
        self._next_offset = next_offset
        self._shards = shards
        self._partitions = partitions
        self._offset: float | None = None
        """Greatest event time minus time of receipt."""
        self._open: dict[int, list[SourceChanges]] = {}
        self._session: dict[int, SessionChanges] = {}
        """By shard, the session whose changes its open record ends with."""
        self._bytes: dict[int, int] = {}
        self._records: list[tuple[int, bytes, bytes]] = []

    def add(self, source: SourceResidency) -> None:
        """Add the changes of a source."""
        for session in source.take_changes():
            heard = source.head.connectivity
            if heard.seen_live and session.changes:
                offset = min(heard.clock_offset, 0.0)
                self._offset = offset if self._offset is None else max(self._offset, offset)
            if session.decides:
                for shard in range(self._shards):
                    self._changes(shard, source, session, 0)
            receives = session.receives or session.undecided
            for shard, part in by_shard(session.changes, self._shards, most=MOST_CHANGES, receives=receives):
                size = BYTES_PER_PART + len(part.hashes) * BYTES_PER_CHANGE // HASH_BYTES
                size += _bytes_of(part.medium, *part.loras)
                self._changes(shard, source, session, size).append(part)

    def _changes(
        self, shard: int, source: SourceResidency, session: SessionChanges, size: int
    ) -> list[ResidencyChanges]:
        """Return the list to which changes of a shard, `size` bytes packed, are to be appended."""
        head = source.head
        of_source = BYTES_PER_PART + _bytes_of(head.replica, session.model, session.hash_domain)
        if shard in self._open and self._bytes[shard] + of_source + size > RECORD_BYTES:
            self._close(shard)
        sources = self._open.setdefault(shard, [])
        self._bytes[shard] = self._bytes.get(shard, 0) + size
        if self._session.get(shard) is not session:
            self._session[shard] = session
            self._bytes[shard] += of_source
            sources.append(
                SourceChanges(
                    head.replica,
                    session.model,
                    session.hash_domain,
                    head.dp_rank,
                    session.incarnation,
                    session.trust,
                    [],
                    session.receives,
                    session.undecided,
                )
            )
        return sources[-1].changes

    def _close(self, shard: int, read_to: float = 0.0, offset: float | None = None) -> None:
        self._bytes.pop(shard, None)
        self._session.pop(shard, None)
        record = ResidencyRecord(
            self._partition,
            shard,
            self._next_offset,
            self._open.pop(shard, []),
            self._partitions,
            read_to,
            offset,
        )
        self._records.append((shard, str(self._partition).encode(), _encode(record)))

    def finish(self, read_to: float = 0.0) -> list[tuple[int, bytes, bytes]]:
        """Return (shard, key, value) of all records; those of a shard in order.

        If `read_to` is given, the last one of each shard reports how far the partition is read.
        """
        for shard in range(self._shards) if read_to else sorted(self._open):
            self._close(shard, read_to, self._offset)
        return self._records


def _bytes_of(*texts: str) -> int:
    return sum(len(text.encode()) for text in texts)
