"""Notices a partition that has records waiting but makes no progress."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from pipeline.errors import Stalled


@dataclass(frozen=True)
class PartitionProgress:
    """How far a partition is at one moment."""

    next_offset: int
    """Offset of the record to be applied next."""
    end: int
    """Offset after the newest record that can be read."""


class Watchdog:
    """Decides from observations; pure, the clock is given."""

    def __init__(self, topic: str, stall_seconds: float) -> None:
        self._topic = topic
        self._stall_seconds = stall_seconds
        self._seen: dict[int, tuple[int, float]] = {}

    def observe(self, now: float, partitions: Mapping[int, PartitionProgress], *, excused: bool) -> None:
        """Look at all owned partitions at monotonic time `now`; raise Stalled.

        `excused` says that standing still has a known cause that a restart would not cure.
        """
        for partition in self._seen.keys() - partitions.keys():
            del self._seen[partition]
        for partition, progress in partitions.items():
            offset, since = self._seen.get(partition, (-1, now))
            lag = progress.end - progress.next_offset
            if excused or lag <= 0 or offset != progress.next_offset:
                self._seen[partition] = (progress.next_offset, now)
            elif now - since >= self._stall_seconds:
                raise Stalled(self._topic, partition, lag, now - since)
