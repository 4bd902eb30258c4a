"""Merges all partitions of the events topic into one order, even where sources moved between them. Pure.

When a topic gets more partitions, keys move: what a source did before is in one partition and what it did
after in another, several times if the topic grew several times. Records of one partition stay in their order;
those of several come by the broker's time, except that none comes before an earlier one of its source, by
(incarnation, sequence number). Brokers' clocks may differ by as much as the caller looks ahead.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Hashable, Iterable
from typing import Generic, NamedTuple, TypeVar

Record = TypeVar("Record")
Place = tuple[int, int]
"""(incarnation, last sequence number) of a record; -1 where none of the incarnation is known."""


class _Waiting(NamedTuple, Generic[Record]):
    record: Record
    time: float
    size: int
    source: Hashable
    place: Place


class Merge(Generic[Record]):
    """Takes the records of each partition in their order, and returns them in the order of the whole log."""

    def __init__(self, partitions: Iterable[int]) -> None:
        self._queues: dict[int, deque[_Waiting[Record]]] = {partition: deque() for partition in partitions}
        self._unread = set(self._queues)
        self._reached: dict[Hashable, dict[int, Place]] = {}
        """The latest place of each source in each partition."""
        self._places: dict[Hashable, dict[int, deque[Place]]] = {}
        """Those of records that wait, by source and partition."""
        self.waiting_bytes = 0

    def add(
        self,
        partition: int,
        record: Record,
        *,
        time: float,
        size: int,
        source: Hashable,
        incarnation: int = 0,
        seq: int | None = None,
    ) -> None:
        """Add the next record of a partition.

        `time`: the broker's, in seconds. `seq` is None for a record of notices alone, which stays after what
        came before it.
        """
        reached = self._reached.setdefault(source, {})
        if seq is None:
            known = [place[1] for place in reached.values() if place[0] == incarnation]
            seq = max(known, default=-1)
        # What is repeated or late in its partition keeps its position there.
        place = reached[partition] = max(reached.get(partition, (0, -1)), (incarnation, seq))
        self._queues[partition].append(_Waiting(record, time, size, source, place))
        self._places.setdefault(source, {}).setdefault(partition, deque()).append(place)
        self.waiting_bytes += size

    def read_to_end(self, partition: int) -> None:
        """Note that nothing more of a partition will be added."""
        self._unread.discard(partition)

    def wanted(self, seconds: float) -> Collection[int]:
        """Return the partitions to add records of before `next`, so that it looks `seconds` ahead.

        With 0 those of which none waits, however far brokers' clocks were set back.
        """
        heads = [queue[0].time for queue in self._queues.values() if queue]
        until = min(heads, default=0.0) + seconds
        return {
            partition
            for partition in self._unread
            if not (queue := self._queues[partition]) or (seconds and queue[-1].time < until)
        }

    def next(self) -> Record | None:
        """Return the next record; None if none waits."""
        heads = [(queue[0].time, partition) for partition, queue in self._queues.items() if queue]
        if not heads:
            return None
        heads.sort()
        # None is free where clocks contradict each other: then the earliest goes.
        free = (partition for _, partition in heads if not self._is_early(partition))
        return self._taken(next(free, heads[0][1]))

    def _is_early(self, partition: int) -> bool:
        """Return whether a record that is earlier in the head's source waits in another partition."""
        head = self._queues[partition][0]
        places = self._places[head.source]
        return len(places) > 1 and any(
            others[0] < head.place for other, others in places.items() if other != partition
        )

    def _taken(self, partition: int) -> Record:
        head = self._queues[partition].popleft()
        places = self._places[head.source]
        places[partition].popleft()
        if not places[partition]:
            del places[partition]
        if not places:
            del self._places[head.source]
        self.waiting_bytes -= head.size
        return head.record
