"""Which sources of a partition are forgotten, by the rule of docs/exactness.md#forgotten-sources."""

from __future__ import annotations

from schemas.events import EventsRecord
from schemas.settings import Worker

LONGEST_STEP = 60.0
"""Seconds from one record of a source to the next that count at most."""

SourceId = tuple[str, int]


class Silences:
    """The clock of a partition, and what it showed at the last record of each source."""

    def __init__(self, worker: Worker) -> None:
        self._most = worker.forget_seconds
        self._clock = 0.0
        self._shown: dict[SourceId, float] = {}
        """By source, the one first whose last record is the oldest."""
        self._received: dict[SourceId, float] = {}
        """Latest receipt of each."""

    def next(self, record: EventsRecord) -> list[SourceId]:
        """Go on with a record; return which sources are forgotten before it counts."""
        source = (record.replica, record.dp_rank)
        if record.batches:
            received = record.batches[-1].received_at
            before = self._received.get(source, 0.0)
            if before > 0 and received > 0:
                gone_by = max(0.0, min(received - before, LONGEST_STEP))
                self._clock = max(self._clock, self._shown[source] + gone_by)
            if received > 0:
                self._received[source] = max(before, received)
        self._shown.pop(source, None)
        self._shown[source] = self._clock
        forgotten = []
        while self._clock - (oldest := next(iter(self._shown.items())))[1] >= self._most:
            forgotten.append(oldest[0])
            del self._shown[oldest[0]]
            self._received.pop(oldest[0], None)
        return forgotten
