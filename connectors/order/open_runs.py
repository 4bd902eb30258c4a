"""Which streams have an open run that may be due, found without looking at the other streams. No IO."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from heapq import heappop, heappush
from typing import Protocol

from connectors.sources import SourceKey
from schemas.events import EventsRecord

MIN_TICK_SECONDS = 0.005
"""Shortest pause between two looks for runs that are due."""


def tick_seconds(linger_seconds: float) -> float:
    """Return the pause between two looks for runs that are due after so many seconds."""
    return max(linger_seconds / 4, MIN_TICK_SECONDS)


class Stream(Protocol):
    """What has an open run now and then."""

    @property
    def due_at(self) -> float | None: ...
    def due(self, now: float) -> list[EventsRecord]: ...


class OpenRuns:
    """Streams by when their open run is due. Times are seconds since the epoch; the clock may be set back."""

    def __init__(self) -> None:
        self._by_time: list[tuple[float, SourceKey]] = []
        self._sources: set[SourceKey] = set()
        self._asked_at = 0.0

    def opened(self, source: SourceKey, due_at: float) -> None:
        """Note that a stream opened a run, unless `due` has yet to return the stream for an earlier one."""
        if source not in self._sources:
            self._sources.add(source)
            heappush(self._by_time, (due_at, source))

    def due(self, now: float) -> list[SourceKey]:
        """Remove and return the streams to look at: by now their open run may be another one, or none."""
        by_time = self._by_time
        due = []
        if now < self._asked_at:
            due = [source for _, source in by_time]
            by_time.clear()
        while by_time and by_time[0][0] <= now:
            due.append(heappop(by_time)[1])
        self._sources.difference_update(due)
        self._asked_at = now
        return due

    def closed(self, streams: Mapping[SourceKey, Stream], now: float) -> Iterator[EventsRecord]:
        """Close the open runs of these streams that are due, and yield their records."""
        for source in self.due(now):
            stream = streams.get(source)
            if stream is not None:
                yield from stream.due(now)
                if stream.due_at is not None:
                    self.opened(source, stream.due_at)
