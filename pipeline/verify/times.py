"""Windows and moments as docs/exactness.md defines them."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone

from schemas.events import EventsRecord
from schemas.settings import Worker

EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
WINDOW = 10
"""Seconds."""
CARRIED_AT_ONCE = 360
"""Windows of a pause that get rows: the last ones; the earlier ones get none."""


def window_of(at: float) -> int:
    """Return the number of the ten-second window, from the epoch on, that holds a moment; 0 before."""
    return max(0, int(at // WINDOW))


def end_of(window: int) -> float:
    """Return the first moment after a window."""
    return float((window + 1) * WINDOW)


def start_of(window: int) -> datetime:
    """Return the first moment of a window."""
    return EPOCH + timedelta(seconds=window * WINDOW)


def start_of_period(window: datetime, length: timedelta) -> datetime:
    """Return the beginning of the minute or hour that a window lies in."""
    return EPOCH + (window - EPOCH) // length * length


def number_of(start: datetime) -> int:
    """Return the number of the window that begins then."""
    return int((start - EPOCH).total_seconds()) // WINDOW


def moment(at: float) -> datetime:
    """Return a time as tables show it: truncated to milliseconds."""
    return EPOCH + timedelta(milliseconds=int(at * 1000))


def event_time(ts: float, received_at: float, worker: Worker) -> float:
    """Return the engine's time; that of receipt where the engine's clock is too far ahead or behind."""
    too_late = ts > received_at + worker.max_clock_ahead_seconds
    too_early = ts < max(0.0, received_at - worker.max_clock_behind_seconds)
    return received_at if too_late or too_early else ts


def believe_the_log(record: EventsRecord, written_at: float, worker: Worker) -> None:
    """Replace times by a connector's clock that are too far ahead of the log's time by the log's time."""
    for batch in record.batches if written_at > 0 else ():
        if batch.received_at > written_at + worker.max_clock_ahead_seconds:
            batch.received_at = written_at
        if batch.seq is None and batch.ts > written_at + worker.max_clock_ahead_seconds:
            batch.ts = written_at
