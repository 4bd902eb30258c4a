"""How the event stream of a source fared in the open window."""

from __future__ import annotations

from schemas.checkpoints import HealthState


class Health(HealthState):
    """Counters of one window; see `schemas.rows.StreamHealthRow` for their meaning."""

    def live(self, engine_events: int, lag: float) -> None:
        """Count a batch that was new and came when it was due."""
        self.batches += 1
        self.events += engine_events
        if lag > self.lag_seconds:
            self.lag_seconds = lag

    def replayed(self, engine_events: int, *, was_due: bool) -> None:
        """Count a batch that was new and came by replay; `was_due`: it should have come live."""
        self.batches += 1
        self.events += engine_events
        self.replayed_batches += 1
        self.gap_batches += was_due

    def lost(self, batches: int) -> None:
        """Count batches that were missing and will never come."""
        self.gap_batches += batches
        self.lost_batches += batches
