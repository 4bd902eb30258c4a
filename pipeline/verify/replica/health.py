"""What the row of a source's stream counts in a window."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass
class Health:
    """The counters of `schemas.rows.StreamHealthRow`."""

    batches: int = 0
    events: int = 0
    duplicate_batches: int = 0
    gap_batches: int = 0
    replayed_batches: int = 0
    lost_batches: int = 0
    undecodable_events: int = 0
    restarts: int = 0
    lag_seconds: float = 0.0
