"""Rows of one source. Pure: what is written when is decided by `source_windows`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime, timezone
from typing import NamedTuple

from msgspec.structs import asdict

from pipeline.reading import windows
from pipeline.residency.objects.objects import HeldObjects
from pipeline.residency.occupancy import Occupancy
from pipeline.residency.stream import connectivity, drift, trust
from schemas.checkpoints import HealthState, SourceHead
from schemas.events import EngineCounters
from schemas.pool_checkpoints import FlowState, ObjectFlow
from schemas.rows import (
    EngineCountersRow,
    FlowRow,
    ObjectsRow,
    OccupancyRow,
    Row,
    SourceRow,
    StreamHealthRow,
)

_NOTHING = FlowState()


class View(NamedTuple):
    """A window of a source, as its rows show it."""

    head: SourceHead
    """As it is at the end of the window, everything settled."""
    window: int
    occupancy: Sequence[Occupancy]
    """At the end of the window."""
    objects: Iterable[HeldObjects] = ()
    """The same for objects, and their uses in the open window."""
    idle: bool = False
    """Nothing came in the window: its rows carry forward what was left."""


def rows(view: View) -> list[Row]:
    """Return the rows of a window: occupancy, what came and went, and stream health."""
    flow = [] if view.idle else _flow_rows(view)
    return [*_occupancy_rows(view), *flow, *_objects_rows(view), _health_row(view)]


def timestamp(at: float) -> datetime:
    """Return seconds since the epoch as UTC, to the millisecond that tables keep."""
    return datetime.fromtimestamp(int(at * 1000) / 1000, timezone.utc)


def media(head: SourceHead) -> set[str]:
    """Return the media that have a pool: those of which something was announced."""
    return {pool.medium for pool in head.pools}


def _occupancy_rows(view: View) -> list[Row]:
    head = view.head
    start = windows.window_start(view.window)
    found: list[Row] = []
    for part in view.occupancy:
        since = trust.of(head.trust, part.medium)
        found.append(
            OccupancyRow(
                window=start,
                model=head.model,
                replica=head.replica,
                dp_rank=head.dp_rank,
                medium=part.medium,
                group_idx=part.group_idx,
                block_size=part.block_size,
                entries=part.entries,
                blocks=part.blocks,
                tokens=part.tokens,
                covered_blocks=part.covered_blocks,
                capacity_blocks=_capacity(head, part),
                store_only=part.store_only,
                at_least=part.at_least,
                trust=since.trust,
                trust_since=timestamp(since.since),
                version=head.version,
            )
        )
    return found


def _capacity(head: SourceHead, part: Occupancy) -> int:
    """Return how many blocks there is room for, as the engine reports; 0 where it does not."""
    if part.medium == "cpu" and part.block_size:
        return head.cpu_capacity_tokens // part.block_size
    return head.capacity_blocks if part.medium == "gpu" else 0


def _flow_rows(view: View) -> list[Row]:
    head = view.head
    start = windows.window_start(view.window)
    found: list[Row] = []
    for pool in head.pools:
        flow = pool.flow
        if flow == _NOTHING:
            continue
        since = trust.in_window(head.trust, pool.medium)
        counters = asdict(flow)  # named as the columns
        lifetimes = counters.pop("lifetimes")
        found.append(
            FlowRow(
                window=start,
                model=head.model,
                replica=head.replica,
                dp_rank=head.dp_rank,
                medium=pool.medium,
                group_idx=pool.group_idx,
                **counters,
                lifetime_hist=lifetimes,
                trust=since.trust,
                trust_since=timestamp(since.since),
                version=head.version,
            )
        )
    return found


def _objects_rows(view: View) -> list[Row]:
    head = view.head
    start = windows.window_start(view.window)
    found: list[Row] = []
    for part in view.objects:
        flow = ObjectFlow() if view.idle else part.flow
        trust_of = trust.of if view.idle else trust.in_window
        since = trust_of(head.trust, part.medium)
        found.append(
            ObjectsRow(
                window=start,
                model=head.model,
                replica=head.replica,
                dp_rank=head.dp_rank,
                medium=part.medium,
                group_idx=part.group_idx,
                objects=part.objects,
                bytes=part.size,
                capacity_bytes=part.capacity,
                stored_objects=flow.stored_objects,
                stored_bytes=flow.stored_bytes,
                accesses=flow.accesses,
                accessed_tokens=flow.accessed_tokens,
                accessed_bytes=flow.accessed_bytes,
                hits=flow.hits,
                hit_tokens=flow.hit_tokens,
                hit_bytes=flow.hit_bytes,
                first_accesses=flow.first_accesses,
                unknown_accesses=flow.unknown_accesses,
                unlisted_objects=flow.unlisted_objects,
                uses_hist=[*flow.uses_hist],
                reuse_hist=[*flow.reuse_hist],
                needed_hist=[*flow.needed_hist],
                trust=since.trust,
                trust_since=timestamp(since.since),
                version=head.version,
            )
        )
    return found


def _health_row(view: View) -> Row:
    head, window = view.head, view.window
    health = HealthState() if view.idle else head.health
    heard = head.connectivity.last_batch_at
    drift_blocks = drift.blocks(head.drift, view.occupancy)
    drift_since = drift.since_window(head.drift, head.window or window, drift_blocks)
    worst = trust.worst if view.idle else trust.worst_in_window
    since = worst(head.trust, media(head))
    return StreamHealthRow(
        window=windows.window_start(window),
        model=head.model,
        replica=head.replica,
        dp_rank=head.dp_rank,
        **asdict(health),
        incarnation=head.incarnation,
        last_seq=head.last_seq,
        last_batch_at=timestamp(heard) if heard is not None else None,
        connected=connectivity.connected_in(head.connectivity, window),
        drift_blocks=drift_blocks,
        drift_since=windows.window_start(drift_since) if drift_since is not None else None,
        trust=since.trust,
        trust_since=timestamp(since.since),
        version=head.version,
    )


def source_rows(head: SourceHead) -> list[Row]:
    """Return the row of the present session; none while its first sequence number is not known."""
    if head.first_seq < 0:
        return []
    since = trust.worst(head.trust, media(head))
    return [
        SourceRow(
            model=head.model,
            replica=head.replica,
            dp_rank=head.dp_rank,
            incarnation=head.incarnation,
            opened_at=timestamp(head.opened_at),
            closed_at=timestamp(head.closed_at) if head.closed_at is not None else None,
            closed_reason=head.closed_reason,
            engine=head.engine,
            wire_era=head.wire_era,
            hash_domain=head.hash_domain,
            tenant=head.tenant,
            role=head.role,
            first_seq=head.first_seq,
            last_seq=head.last_seq,
            remarks=head.remarks,
            trust=since.trust,
            trust_since=timestamp(since.since),
            version=head.version,
        )
    ]


def counters_row(head: SourceHead, event: EngineCounters, at: float) -> Row:
    """Return the row of a scrape, at event time `at`, of the engine's own counters."""
    return EngineCountersRow(
        time=timestamp(at),
        model=head.model,
        replica=head.replica,
        dp_rank=head.dp_rank,
        prefix_cache_queries=event.prefix_cache_queries,
        prefix_cache_hits=event.prefix_cache_hits,
        external_queries=event.external_queries,
        external_hits=event.external_hits,
        capacity_blocks=event.capacity_blocks,
        block_size=event.block_size,
        kv_cache_usage=event.kv_cache_usage,
        prefill_seconds=event.prefill_seconds,
        prefill_tokens=event.prefill_tokens,
        cpu_capacity_tokens=event.cpu_capacity_tokens,
        computed_tokens=event.computed_tokens,
        transferred_tokens=event.transferred_tokens,
        reloaded_tokens=event.reloaded_tokens,
        generation_tokens=event.generation_tokens,
        version=head.version,
    )
