"""The bases of all sources of a partition, and whose turn it is."""

from __future__ import annotations

from collections.abc import Iterable

from pipeline.applying.steps import Steps
from pipeline.residency.checkpoint.bases import CheckpointRecord, SourceBases
from pipeline.residency.limits import resident
from pipeline.residency.silence import SourceKey
from pipeline.residency.source import SourceResidency
from schemas.checkpoints import SourceBase

BASE_BYTES = 4 << 20
"""Bytes of bases per checkpoint, and one more record at most: a checkpoint must not hold the worker up."""
LAST_BLOCKS = 640_000
"""Blocks in bases of an owner's last checkpoint, 16 MiB: it has only seconds for all its partitions."""


class PartitionBases:
    """Writes bases of the sources that changed, as far as there is room for them."""

    def __init__(self) -> None:
        self._by_source: dict[SourceKey, SourceBases] = {}
        self._forgotten: list[CheckpointRecord] = []
        """Records that delete those of forgotten sources from the checkpoint topic."""

    def add(
        self,
        key: SourceKey,
        source: SourceResidency,
        base: SourceBase | None = None,
        written: Iterable[str | int] = (),
    ) -> None:
        """Add a source: a new one, or one that was restored from a base; `written`: its slots."""
        self._by_source[key] = SourceBases(source, base, written)

    def leftovers(self, keys: Iterable[bytes]) -> None:
        """Delete keys: parts of a first base that was not finished."""
        self._forgotten += [(key, None) for key in keys]

    def forget(self, key: SourceKey) -> None:
        """Delete all that the checkpoint topic has of a source."""
        self._forgotten += self._by_source.pop(key).nothing()

    def changed(self, key: SourceKey, offset: int) -> None:
        """Note that the record at `offset` was applied to a source."""
        self._by_source[key].changed(offset)

    def standing(self, key: SourceKey) -> tuple[int, int | None]:
        """Return the number of a source's base, -1 if there is none, and the offset from which it lacks
        something, None if it lacks nothing."""
        bases = self._by_source[key]
        return bases.number, bases.lacks

    def cutting(self, now: float, next_offset: int, *, last: bool) -> Steps[list[CheckpointRecord]]:
        """Make the records of a checkpoint at wall clock `now`, of the state before `next_offset`.

        The `last` one of an owner has a base of every source that changed, as far as there is time.
        """
        records, self._forgotten = self._forgotten, []
        if last:
            yield from self._last(next_offset, records)
            return records
        begun = [bases for bases in self._by_source.values() if bases.begun]
        due = [bases for bases in self._by_source.values() if bases.due(now)]
        room = BASE_BYTES
        # First bases come first, then those for which a start has to read most of the log.
        for bases in [*begun, *sorted(due, key=_turn)]:
            if room <= 0:
                break
            if not bases.begun:
                bases.begin(next_offset)
            while room > 0 and (record := bases.take()) is not None:
                records.append(record)
                room -= len(record[1] or b"")
                yield
        return records

    def _last(self, next_offset: int, records: list[CheckpointRecord]) -> Steps[None]:
        room = LAST_BLOCKS
        lacking = [bases for bases in self._by_source.values() if bases.lacks is not None]
        for bases in sorted(lacking, key=_turn):
            room -= resident(bases.source.pools)
            if room < 0:
                break
            bases.begin(next_offset)
            while (record := bases.take()) is not None:
                records.append(record)
            yield


def _turn(bases: SourceBases) -> tuple[bool, int]:
    return not bases.is_first, bases.lacks or 0
