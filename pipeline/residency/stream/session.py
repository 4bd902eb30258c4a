"""The engine session of a source: what its first record resets, and which records change nothing."""

from __future__ import annotations

from collections.abc import Callable

from pipeline.residency.counting.block_table import new_spread
from pipeline.residency.stream import drift
from schemas.checkpoints import (
    ConnectivityState,
    DriftState,
    HealthState,
    SourceHead,
    TrustSince,
    TrustState,
)
from schemas.events import EngineCounters, EventsRecord, SourceStatus

NEVER = -1
"""Sequence number before the first batch."""


def new_head(replica: str, dp_rank: int) -> SourceHead:
    """Return the state of a source of which nothing is known yet."""
    nothing = TrustState(TrustSince("partial", 0.0))
    return SourceHead(
        replica,
        dp_rank,
        nothing,
        HealthState(),
        ConnectivityState(),
        DriftState(),
        spread=new_spread(),
    )


def began(head: SourceHead, record: EventsRecord, at: float) -> None:
    """Begin another session with a record of it, of event time `at`.

    Only trust continues, and whether the engine is reached.
    """
    head.connectivity.last_batch_at, head.connectivity.seen_live = None, False
    # Another session may have another capacity, which the engine will report.
    head.drift.capacity_blocks = head.drift.block_size = 0
    head.drift.unused_blocks = drift.UNUSED_BLOCKS
    head.incarnation = record.incarnation
    head.model, head.hash_domain, head.tenant = record.model, record.hash_domain, record.tenant
    head.opened_at = at
    head.closed_at, head.closed_reason = None, ""
    head.first_seq = head.last_seq = NEVER
    head.passed_over = 0
    head.engine = head.wire_era = ""
    head.may_reannounce = None
    head.copies_proved = False
    head.one_copy = False
    head.clears_all = None
    head.transferred = None  # another session counts from zero
    head.remarks = []
    head.limited = False
    head.loras = []


def changes_nothing(
    head: SourceHead, record: EventsRecord, gpu_room: Callable[[EngineCounters], int]
) -> bool:
    """Return whether a record changes nothing that rows of windows show, except how far they are carried.

    `gpu_room` returns the capacity that rows will show after these counters.
    """
    events = [event for batch in record.batches if batch.seq is None for event in batch.events]
    return (
        len(events) == len(record.batches)
        and not record.duplicates
        and record.role == head.role
        and record.engine in ("", head.engine)
        and record.wire_era in ("", head.wire_era)
        and {*record.remarks} <= {*head.remarks}
        and all(
            (
                isinstance(event, EngineCounters)
                and event.capacity_blocks in (None, head.capacity_blocks)
                and gpu_room(event) == head.capacity_blocks
                and event.cpu_capacity_tokens in (None, head.cpu_capacity_tokens)
                and not drift.differs(head.drift, event)
            )
            or (
                isinstance(event, SourceStatus)
                and not event.connected
                and head.connectivity.disconnected_from is not None
            )
            for event in events
        )
    )
