"""Which sources of a partition are forgotten (docs/exactness.md#forgotten-sources).

Each partition of the events topic has a clock of its own for this. At a record of a source it moves to its
value at the source's record before, plus the time between the receipts of the last batches of both, at most
60 seconds; it never goes back. A time of receipt before the latest one of its source counts as that latest
one, so a wrong clock of a connector moves it by 60 seconds at most for each source. A source is forgotten
with the first record of another one at which the clock is `worker.forget_seconds` past its value at the
source's own last record.

Where the log has lost its beginning, it is unknown what the clock of the partition showed there. A silence
may then be longer by one of the steps that span the source's last record; of steps that overlap, only one
counts. So within LEEWAY of when a source is due, the tables decide with which record it is forgotten.
"""

from __future__ import annotations

from collections.abc import Callable

from pipeline.verify.keys import SourceId
from schemas.events import EventsRecord
from schemas.settings import Worker

LONGEST_STEP = 60.0
"""Seconds, at most, by which the clock advances from one record of a source to the next."""

LEEWAY = 2 * LONGEST_STEP
"""Seconds by which a silence may be longer or shorter where the beginning is not known.

One step, and as much again for clocks that were ahead before.
"""


class Silences:
    """The clock of a partition, and what it showed at the last record of each source."""

    def __init__(self, worker: Worker, *, whole: bool) -> None:
        """`whole`: the log has the beginning of the partition."""
        leeway = 0.0 if whole else LEEWAY
        self._possible = worker.forget_seconds - leeway
        self._certain = worker.forget_seconds + leeway
        self._clock = 0.0
        self._shown: dict[SourceId, float] = {}
        """By source, in the order of their last records, the oldest first."""
        self._received: dict[SourceId, float] = {}
        """Latest receipt of each."""

    def in_doubt(self, source: SourceId) -> bool:
        """Return whether a source may have been forgotten without a record being known as the cause."""
        return self._clock - self._shown.get(source, self._clock) >= self._possible

    def next(self, record: EventsRecord, forgotten_by_tables: Callable[[SourceId], bool]) -> list[SourceId]:
        """Process a record; return which sources are forgotten before it counts.

        `forgotten_by_tables`: whether the tables say that a source is forgotten with this record. It is only
        called for sources for which that is possible.
        """
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
        for other, shown in self._shown.items():
            silent = self._clock - shown
            if silent < self._possible:
                break
            if silent >= self._certain or forgotten_by_tables(other):
                forgotten.append(other)
        for other in forgotten:
            del self._shown[other]
            self._received.pop(other, None)
        return forgotten
