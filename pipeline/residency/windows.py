"""Windows of event time, and what to believe of an engine's clock."""

from __future__ import annotations

from datetime import datetime, timezone

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
