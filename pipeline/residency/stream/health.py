"""Counts of a source's event stream in the open window; see `schemas.rows.StreamHealthRow`."""

from __future__ import annotations

from schemas.checkpoints import HealthState

MOST_BATCHES = 2**62
"""Most counted as missing in one window: each of its sessions may lack as many; tables hold twice that."""


def live(health: HealthState, engine_events: int, lag: float, *, batches: int = 1) -> None:
    """Count batches that were new and came when they were due; `lag` is the longest of theirs."""
    health.batches += batches
    health.events += engine_events
    if lag > health.lag_seconds:
        health.lag_seconds = lag


def replayed(health: HealthState, engine_events: int, *, was_due: bool) -> None:
    """Count a batch that was new and came by replay; `was_due`: it should have come live."""
    health.batches += 1
    health.events += engine_events
    health.replayed_batches += 1
    health.gap_batches += was_due


def lost(health: HealthState, batches: int) -> None:
    """Count batches that were missing and will never come."""
    health.gap_batches = min(health.gap_batches + batches, MOST_BATCHES)
    health.lost_batches = min(health.lost_batches + batches, MOST_BATCHES)
