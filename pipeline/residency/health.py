"""How the event stream of a source fared in the open window."""

from __future__ import annotations

from schemas.checkpoints import HealthState


class Health(HealthState):
    """Counters of one window; see `schemas.rows.StreamHealthRow` for their meaning."""

    def applied(self, engine_events: int, lag: float, *, replayed: bool) -> None:
        """Count a batch that was new."""
        self.batches += 1
        self.events += engine_events
        if replayed:
            self.replayed_batches += 1
        elif lag > self.lag_seconds:
            self.lag_seconds = lag

    def lost(self, batches: int) -> None:
        """Count batches that were missing and will never come."""
        self.gap_batches += batches
        self.lost_batches += batches
