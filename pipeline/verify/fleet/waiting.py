"""Which changes count when: in event time, as far as all partitions of the events topic are known.

1. Each record says up to which time of the log its partition of the events topic is read (`read_to`); an
   idle partition says it with every checkpoint, as of the checkpoint before. The minimum over all partitions
   is how far the fleet is read; while a partition has not said it, nothing counts.
2. Event time then is that, plus the difference of clocks (`clock_offset`: event time minus time of receipt,
   no more than 0): the greatest one of the partitions with changes within the 60 s before, or else that of
   the next one with changes. So engines whose events are all hours old are ordered like others.
3. A change counts as of its event time; that of a source that receives KV (`receives`) as of 2 s later.
4. It counts once that time is `fleet.order_seconds` behind event time, in the order of time, at equal times
   in the order of the sources' names. Times of a pool that go back count as the latest before; a
   source's next session, and its next record, count no earlier than the one before. As the end of a session
   counts at the end of its last window, fills of the next one may wait up to 10 s longer.
5. What comes later than that counts at once. No more than `fleet.max_waiting` changes wait in a shard: beyond
   that, the earliest count.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from pipeline.verify.fleet.changes import Change
from pipeline.verify.keys import SourceId
from schemas.residency import ResidencyRecord

HEARD_LATELY = 60.0
"""Clocks are judged by partitions in which something changed within so many seconds of the log; if there are
none, by the next change."""


@dataclass
class _Partition:
    read_to: float = 0.0
    """In the time of the log."""
    offsets: list[tuple[float, float]] = field(default_factory=list)
    """(read_to, clock_offset) whenever something changed; the offset is 0 or negative."""


@dataclass
class _WaitingChange:
    change: Change
    name: SourceId
    """Decides the order at equal times; the same for all where the order of the log decides."""


class WaitingChanges:
    """Changes of a shard that do not count yet."""

    def __init__(self, seconds: float, most: int) -> None:
        """`seconds`: by which changes may come out of order. No more than `most` wait."""
        self._seconds = seconds
        self._most = most
        self._partitions: dict[int, _Partition] = {}
        self._waiting: list[_WaitingChange] = []

    @property
    def count(self) -> int:
        """Return how many changes wait."""
        return len(self._waiting)

    def add(self, record: ResidencyRecord, changes: list[Change]) -> None:
        """Add the changes of a record."""
        self._waiting += [
            _WaitingChange(change, change.of.source if record.partitions else ("", -1)) for change in changes
        ]

    def take(self, until: float) -> list[Change]:
        """Return, in order, the changes that count as of this event time or before, or are too many."""
        if not self._waiting:
            return []
        self._waiting.sort(key=lambda waiting: (waiting.change.due, waiting.name))
        if len(self._waiting) > self._most:
            until = max(until, self._waiting[len(self._waiting) - self._most - 1].change.due)
        taken = [waiting.change for waiting in self._waiting if waiting.change.due <= until]
        self._waiting = self._waiting[len(taken) :]
        return taken

    def waits_of(self, source: SourceId) -> bool:
        """Return whether some change of a source waits."""
        return any(waiting.change.of.source == source for waiting in self._waiting)

    def heard(self, record: ResidencyRecord) -> float:
        """Note how far a record says its partition is; return the event time up to which changes count."""
        return self._event_time(record) - self._seconds

    def _event_time(self, record: ResidencyRecord) -> float:
        if record.partitions == 0:
            return math.inf
        said = self._partitions.setdefault(record.partition, _Partition())
        if record.read_to > said.read_to:
            said.read_to = record.read_to
            if record.clock_offset is not None:
                said.offsets.append((record.read_to, record.clock_offset))
        known = [partition for partition in self._partitions.values() if partition.read_to > 0]
        if len(known) < record.partitions:
            return -math.inf
        common = min(partition.read_to for partition in known)
        before = [[each for each in partition.offsets if each[0] <= common] for partition in known]
        for partition, until in zip(known, before, strict=True):
            partition.offsets = until[-1:] + [each for each in partition.offsets if each[0] > common]
        lately = [until[-1][1] for until in before if until and until[-1][0] >= common - HEARD_LATELY]
        later = sorted(each for partition in known for each in partition.offsets if each[0] > common)
        return common + max(lately, default=later[0][1] if later else 0.0)
