"""How far event time has come in the fleet, by what each partition of the events topic reports as read."""

from __future__ import annotations

import math
from bisect import bisect_right

from schemas.fleet_checkpoints import FleetProgress
from schemas.residency import ResidencyRecord

HEARD_LATELY = 60.0
"""Seconds of the log's time: clocks are judged by partitions in which something changed within this time or,
if there are none, by the next one in which something changes."""


class Progress:
    """Follows the partitions of the events topic. A record that names no partitions waits for none."""

    def __init__(self, of: dict[int, FleetProgress]) -> None:
        """`of` is that of the head: what is known of each partition, by number."""
        self._of = of
        self._event_time = -math.inf
        self._until = math.inf
        """Only records of partitions that were read up to this time of the log or less move event time."""

    def heard(self, record: ResidencyRecord) -> float:
        """Take in a record; return the event time that the fleet has reached: later records are of later
        events, as far as clocks agree. -inf: a partition has not reported yet. inf: nothing has to wait."""
        if not record.partitions:
            return math.inf
        partition = self._of.setdefault(record.partition, FleetProgress())
        before = partition.read_to
        if record.read_to > before:
            partition.read_to = record.read_to
            if record.clock_offset is not None:
                partition.offsets.append((record.read_to, record.clock_offset))
        if before <= self._until:
            self._event_time = self._computed(record.partitions)
        return self._event_time

    def _computed(self, partitions: int) -> float:
        """Return the least time to which a partition was read, plus the greatest offset of a clock."""
        heard = [partition for partition in self._of.values() if partition.read_to]
        if len(heard) < partitions:
            return -math.inf
        read_to = min([partition.read_to for partition in heard])
        lately, later = -math.inf, (math.inf, 0.0)
        for partition in heard:
            offsets = partition.offsets
            if len(offsets) > 1 and offsets[1][0] <= read_to:
                # Of those up to then, only the last one matters from now on.
                del offsets[: bisect_right(offsets, (read_to, math.inf)) - 1]
            if not offsets:
                continue
            if offsets[0][0] > read_to:
                later = min(later, offsets[0])
            else:
                if offsets[0][0] >= read_to - HEARD_LATELY:
                    lately = max(lately, offsets[0][1])
                if len(offsets) > 1:
                    later = min(later, offsets[1])
        known = lately > -math.inf
        self._until = read_to if known else math.inf
        return read_to + (lately if known else later[1])
