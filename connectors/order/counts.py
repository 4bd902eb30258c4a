"""What a stream has seen. No IO."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field


@dataclass(slots=True)
class StreamCounts:
    """What a stream has seen since the process started."""

    batches: int = 0
    replayed: int = 0
    """Of the batches, those that came by replay."""
    engine_events: int = 0
    skipped_events: int = 0
    """Of these, events that change nothing of what is resident."""
    payload_bytes: int = 0
    duplicates: int = 0
    lost_batches: int = 0
    restarts: int = 0
    seconds: float = 0.0
    """Processor time spent on its messages, live and by replay."""
    pauses: int = 0
    """How often it was left unread because more than its share was waiting."""
    last_received_at: float = 0.0
    """Connector clock, seconds since the epoch; 0 before the first batch."""
    gaps_by_reason: Counter[str] = field(default_factory=Counter)
    """By `schemas.reasons.GapReason`."""
    undecodable: Counter[str] = field(default_factory=Counter)
    """By `schemas.reasons.UndecodableReason`."""
    asks: Counter[str] = field(default_factory=Counter)
    """Finished replay requests, by `schemas.reasons.ReplayOutcome`."""
    left_out: Counter[str] = field(default_factory=Counter)
    """Batches that came but were not taken, by `schemas.reasons.LeftOutReason`."""
