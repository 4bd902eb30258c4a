"""Compares the sources of one partition of the events topic while it goes through the log."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime

from pipeline.kafka.refusal import RecordRefused
from pipeline.verify.findings import Findings
from pipeline.verify.keys import SourceId
from pipeline.verify.replica.check import SourceCheck
from pipeline.verify.replica.expected import ReplicaRow
from pipeline.verify.replica.residency_sums import PoolOfSession, ResidencySums
from pipeline.verify.replica.silence import Silences
from schemas.events import EventsRecord
from schemas.settings import Worker


class PartitionCheck:
    """Compares the recounts of all sources of a partition with their rows in the tables."""

    def __init__(
        self,
        worker: Worker,
        found: dict[SourceId, list[ReplicaRow]],
        findings: Findings,
        *,
        begin: int,
        committed: int,
        oldest: datetime,
    ) -> None:
        """`found`: the rows of each source, which are taken out of it. `begin`: first offset in the log.

        `committed` and `oldest`: as in SourceCheck.
        """
        self._worker = worker
        self._found = found
        self._findings = findings
        self._begin = begin
        self._committed = committed
        self._oldest = oldest
        self._checks: dict[SourceId, SourceCheck] = {}
        self._silences = Silences(worker, whole=begin == 0)

    def apply(self, offset: int, record: EventsRecord) -> list[SourceId]:
        """Process the next record; return which sources are forgotten with it."""
        source = (record.replica, record.dp_rank)
        check = self._check_of(source)
        if self._silences.in_doubt(source):
            check.begin_anew(offset)
        # Only what is forgotten has a row that rests on a record of another source.
        forgotten = self._silences.next(record, lambda other: self._checks[other].rests_on(offset))
        for silent in forgotten:
            self._checks[silent].forget(offset)
        check.apply(offset, record)
        return forgotten

    def set_aside(self, offset: int, refused: RecordRefused) -> None:
        """Process a record that cannot be applied."""
        for source, check in self._checks.items():
            if refused.names(*source):
                if self._silences.in_doubt(source):
                    check.begin_anew(offset)
                check.set_aside(offset)

    def finish(self, end: int) -> None:
        """Compare the rows that are left, after the records before `end`."""
        for source in list(self._found):
            self._check_of(source)
        for check in self._checks.values():
            check.finish(self._begin, end)

    def residency_sums(self) -> Iterator[dict[PoolOfSession, ResidencySums]]:
        """Yield what the residency topic must add up to for each source, as of what was committed."""
        for check in self._checks.values():
            yield check.residency_sums

    def _check_of(self, source: SourceId) -> SourceCheck:
        if source not in self._checks:
            self._checks[source] = SourceCheck(
                source,
                self._worker,
                self._found.pop(source, ()),
                self._findings,
                committed=self._committed,
                whole=self._begin == 0,
                oldest=self._oldest,
            )
        return self._checks[source]
