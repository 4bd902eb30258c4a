"""The checkpoints of all sources of a partition, and whose turn it is to write a base."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from pipeline.applying.steps import Steps
from pipeline.residency.checkpoint.snapshot import SourceSnapshots
from pipeline.residency.source import SourceResidency

BASE_BYTES = 4 << 20
"""Of bases per checkpoint, and one more base at most: a checkpoint must not hold the worker up."""

SourceKey = tuple[str, int]
CheckpointRecord = tuple[bytes, bytes | None]
"""Key and value; None: the key has no value any more."""


class PartitionSnapshots:
    """Writes deltas of the sources that changed, and bases as far as there is room for them."""

    def __init__(self) -> None:
        self._by_source: dict[SourceKey, SourceSnapshots] = {}
        self._waiting: set[SourceKey] = set()
        """Sources that want a base."""
        self._forgotten: list[CheckpointRecord] = []
        """What takes the records of forgotten sources out of the log."""
        self._deltas: list[CheckpointRecord] = []
        """Of the changed sources."""
        self._changed: list[SourceKey] = []
        """Sources taken since the last cut."""

    def add(
        self,
        key: SourceKey,
        source: SourceResidency,
        slots: Sequence[int] = (),
        written: Iterable[str | int] = (),
    ) -> None:
        """Add a source: a new one, or one that was restored, from deltas in `slots`, of those `written`."""
        self._by_source[key] = SourceSnapshots(source, slots, written)

    def forget(self, key: SourceKey) -> None:
        """Keep nothing of a source."""
        self._forgotten += self._by_source.pop(key).nothing()
        self._waiting.discard(key)

    def take(self, key: SourceKey) -> None:
        """The next cut has what changed of this source."""
        snapshots = self._by_source[key]
        self._deltas += snapshots.deltas()
        self._changed.append(key)
        if snapshots.wants_base:
            self._waiting.add(key)

    def cutting(self) -> Steps[list[CheckpointRecord]]:
        """Make the records that bring the checkpoint up to date."""
        # What is forgotten comes first, because a source may have come back since.
        records = self._forgotten + self._deltas
        heads = dict.fromkeys(self._changed)
        self._forgotten, self._deltas, self._changed = [], [], []
        room = BASE_BYTES
        # Those come first of which a start has to read most.
        for key in sorted(self._waiting, key=lambda key: -self._by_source[key].deltas_kept):
            source = self._by_source[key]
            while room > 0 and source.wants_base:
                base = source.base()
                room -= sum(len(value) for _, value in base)
                records += base
                heads[key] = None
                yield
            if not source.wants_base:
                self._waiting.discard(key)
        for key in heads:
            records += self._by_source[key].head()
            yield
        return records
