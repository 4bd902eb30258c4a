"""Streams of LMCache's servers and of the storage behind them: batches in, records out. No IO.

A server's memory dies with it, so it is a source whose sessions are the server's, and whose numbers are the
server's less one. Storage outlives the servers that write to it, of which there may be several: its batches
are numbered as they arrive, and its records say how far each server is. So both know what they have taken.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping

from connectors.lmcache.decoder import Part, Reported
from connectors.order.counts import StreamCounts
from connectors.order.log import NOBODY, Hearers, SourceLog
from connectors.order.sequence import StoredPosition
from connectors.positions.ledger import latest
from connectors.sources import Source
from schemas.events import Batch, Event, EventsRecord
from schemas.positions import PositionRecord
from schemas.reasons import ClosedReason, GapReason, Remark
from schemas.settings import Connector

MICROSECONDS = 10**6
FIRST_ARRIVED = 1
"""Number of the first batch of a storage: 0 would say that nothing came before."""
MOST_MISSING = 1 << 32
"""Batches of one server that a storage counts as lost at a time, at most: its numbers never run out."""
LOST: GapReason = "replay_not_configured"
"""What did not arrive cannot be replayed."""
_NOTHING = Part()


class LmcacheServer:
    """The publisher, as records describe it."""

    engine = "lmcache"
    wire_era = "lmcache-json"
    may_reannounce = None
    clears_all = None
    one_copy = True
    """A server may store what is already there: its directory then replaces the object."""


class ReportStream(ABC):
    """One source; its methods return the records that they closed."""

    def __init__(
        self,
        source: Source,
        settings: Connector,
        clock: Callable[[], float],
        hearers: Hearers = NOBODY,
        resume: PositionRecord | None = None,
        remark: Remark | None = None,
    ) -> None:
        """`resume` is where the log ends for the source; the rest is as for a `SourceStream`.

        `remark` is true of the source whatever is reported.
        """
        self.source = source
        self._remark = remark
        stored = None if resume is None else StoredPosition.of(resume)
        self._log = SourceLog(source, settings, hearers, stored, clock(), facts=LmcacheServer())
        self._go_on(resume)

    @abstractmethod
    def _go_on(self, resume: PositionRecord | None) -> None:
        """Take over how far the log is with each server; None: it has nothing of the source."""

    @property
    def counts(self) -> StreamCounts:
        """What the stream has seen since the process started."""
        return self._log.counts

    @property
    def begun(self) -> bool:
        """Whether the log has something of the present session."""
        return self._log.begun

    @property
    def due_at(self) -> float | None:
        """When `due` will close the open run; None when there is none."""
        return self._log.runs.deadline

    @abstractmethod
    def take(self, reported: Reported, part: Part | None, received_at: float) -> list[EventsRecord]:
        """Take the next batch of a server; `part` is what it says of this source."""

    def note(self, event: Event, at: float) -> list[EventsRecord]:
        """Put a notice of the connector's own into the stream."""
        self._log.notice(event, at)
        return self._log.take_closed()

    def end(self, reason: ClosedReason, now: float) -> list[EventsRecord]:
        """End the session that the log has something of; what comes next begins another."""
        self._log.end(reason, now)
        return self._log.take_closed()

    def due(self, now: float) -> list[EventsRecord]:
        """Return the open run if its time has come."""
        self._log.runs.close_due(now)
        return self._log.take_closed()

    def flush(self) -> list[EventsRecord]:
        """Return the open run."""
        self._log.runs.flush()
        return self._log.take_closed()

    def _past(self, reported: Reported, reached: tuple[int, int]) -> bool:
        """Return whether a batch is not beyond `reached`, (session, number) of its server; count it if so."""
        if reported.incarnation < reached[0]:
            self._log.counts.left_out["past_life"] += 1
            return True
        if (reported.incarnation, reported.seq) <= reached:
            self._log.repeated()
            return True
        return False

    def _add(
        self,
        reported: Reported,
        part: Part,
        seq: int,
        received_at: float,
        reached: tuple[str, tuple[int, int]] | None = None,
    ) -> None:
        if self._remark is not None:
            self._log.remark(self._remark)
        ts = reported.ts or received_at
        batch = Batch(seq, ts, received_at, part.events, part.engine_events)
        self._log.take_decoded(
            batch, seq, reported.size, part.skipped, received_at, missing=LOST, reached=reached
        )


class MemoryStream(ReportStream):
    """What a server has in its own memory; every batch of the server has a number here."""

    def _go_on(self, resume: PositionRecord | None) -> None:
        self._last = 0 if resume is None else resume.incarnation
        """Incarnation of the source that was last begun; 0 for none."""
        self._reached = (0, 0)
        if resume is not None and resume.incarnation:
            seq = 0 if resume.seq is None else resume.seq + 1
            self._reached = resume.incarnation // MICROSECONDS, seq

    def take(self, reported: Reported, part: Part | None, received_at: float) -> list[EventsRecord]:
        if not self._past(reported, self._reached):
            log = self._log
            if log.begun and reported.incarnation > self._reached[0]:
                log.end("restarted", received_at)
            if not log.begun:
                # Every reader of a server derives the same number; a closed session continues as another.
                self._last = max(reported.incarnation * MICROSECONDS, self._last + 1)
                log.runs.incarnation = self._last
            if reported.loads_stay:
                log.remark("loads_stay")
            self._add(reported, part or _NOTHING, reported.seq - 1, received_at)
            self._reached = reported.incarnation, reported.seq
        return self._log.take_closed()


class StorageStream(ReportStream):
    """What is in a storage of one server, or of several.

    It is never complete, as it holds what came before the first report, and it is never cleared.
    """

    def _go_on(self, resume: PositionRecord | None) -> None:
        self._reached: dict[str, tuple[int, int]] = {} if resume is None else {**resume.emitters}

    @property
    def servers(self) -> Mapping[str, tuple[int, int]]:
        """(Session, number of the last batch taken) of the servers that have written to it."""
        return self._reached

    def take(self, reported: Reported, part: Part | None, received_at: float) -> list[EventsRecord]:
        reached = self._reached.get(reported.instance)
        if reached is None or not self._past(reported, reached):
            log = self._log
            seq = FIRST_ARRIVED if log.position is None else log.position.due
            if reached is not None:
                before = reached[1] if reported.incarnation == reached[0] else 0
                seq += min(reported.seq - 1 - before, MOST_MISSING)
            reached = reported.incarnation, reported.seq
            self._reached = latest(self._reached, {reported.instance: reached})
            self._add(reported, part or _NOTHING, seq, received_at, (reported.instance, reached))
        return self._log.take_closed()
