"""Windows of event time, and what to believe of the clocks of engines and connectors."""

from __future__ import annotations

from datetime import datetime, timezone

from schemas.events import EventsRecord

WINDOW_SECONDS = 10


def window_of(at: float) -> int:
    """Return the number of the window that holds `at` (seconds since the epoch); none is before the epoch."""
    return max(0, int(at // WINDOW_SECONDS))


def window_end(window: int) -> float:
    """Return the first second after a window."""
    return float((window + 1) * WINDOW_SECONDS)


def window_start(window: int) -> datetime:
    """Return a window as the timestamp its rows carry."""
    return datetime.fromtimestamp(window * WINDOW_SECONDS, timezone.utc)


def event_time(ts: float, received_at: float, *, ahead: float, behind: float) -> float:
    """Return the engine's timestamp, or the time of receipt where the engine's clock must be off.

    A batch cannot have been published after it was received (`ahead` seconds of tolerance); one that
    claims to be more than `behind` seconds old, or from before the epoch, is no replay but a clock that was
    never set.
    """
    return ts if max(0.0, received_at - behind) <= ts <= received_at + ahead else received_at


def bounded_by_log(record: EventsRecord, written_at: float, *, ahead: float) -> EventsRecord:
    """Return the record, after changing its times of the connector's clock where that must be off.

    Nothing is received after the log has it: what claims to be more than `ahead` seconds later was received
    at `written_at`, the log's time of the record. Engines are compared by time, so otherwise one clock that
    is ahead would decide for all of them what is over. A log that knows no time (0 or less) bounds nothing.
    """
    if written_at > 0:
        latest = written_at + ahead
        for batch in record.batches:
            if batch.received_at > latest:
                batch.received_at = written_at
            if batch.seq is None and batch.ts > latest:
                batch.ts = written_at
    return record
