"""One struct per ClickHouse table that the pipeline writes; fields are the columns, in order.

Every table is a ReplacingMergeTree(version): a row is identified by its key columns and the highest
`version` (an offset of the events topic) wins, so writing a row twice changes nothing.
"""

from __future__ import annotations

from datetime import datetime
from typing import ClassVar

import msgspec

from schemas.trust import Trust


class OccupancyRow(msgspec.Struct, frozen=True, gc=False):
    """What was resident at the end of a window, per medium, group and granularity."""

    TABLE: ClassVar[str] = "occupancy_10s"

    window: datetime
    model: str
    replica: str
    dp_rank: int
    medium: str
    group_idx: int
    block_size: int
    entries: int
    """Physical copies."""
    blocks: int
    """Distinct hashes."""
    tokens: int
    """Distinct blocks times block_size; tokens covered by a coarser resident block are not repeated."""
    covered_blocks: int
    """Fine-grained blocks not counted above because a resident coarse block covers them."""
    capacity_blocks: int
    """What the engine reports (gpu only); 0 when unknown."""
    store_only: bool
    """The engine never announces removals on this medium: the figures are upper bounds."""
    trust: Trust
    trust_since: datetime
    version: int


class FlowRow(msgspec.Struct, frozen=True, gc=False):
    """What came and went in a window, per medium and group."""

    TABLE: ClassVar[str] = "flow_10s"

    window: datetime
    model: str
    replica: str
    dp_rank: int
    medium: str
    group_idx: int
    stored_blocks: int
    """Physical copies that came."""
    stored_tokens: int
    filled_blocks: int
    """Distinct blocks whose first copy came."""
    removed_blocks: int
    """Physical copies removed by the engine."""
    evicted_blocks: int
    """Distinct blocks whose last copy was removed by the engine."""
    evicted_tokens: int
    cleared_blocks: int
    """Physical copies lost by a clear or a restart."""
    expired_blocks: int
    reannounced_blocks: int
    unknown_removed_blocks: int
    lifetime_hist: list[int]
    """Distinct evicted blocks by lifetime: bucket k counts [2**(k-11), 2**(k-10)) seconds, trailing
    zeros cut (`pipeline.residency.histogram`)."""
    trust: Trust
    trust_since: datetime
    version: int


class StreamHealthRow(msgspec.Struct, frozen=True, gc=False):
    """How the event stream of a source fared in a window."""

    TABLE: ClassVar[str] = "stream_health_10s"

    window: datetime
    model: str
    replica: str
    dp_rank: int
    batches: int
    events: int
    duplicate_batches: int
    gap_batches: int
    """Batches missing when they were due, whether or not they came later by replay."""
    replayed_batches: int
    lost_batches: int
    """Batches that will never come."""
    undecodable_events: int
    restarts: int
    incarnation: int
    last_seq: int
    """-1 before the first batch."""
    lag_seconds: float
    """Largest received_at - ts of live batches in the window."""
    trust: Trust
    trust_since: datetime
    version: int


class EngineCountersRow(msgspec.Struct, frozen=True, gc=False):
    """One scrape of an engine's own counters (cumulative tokens; None where not exported)."""

    TABLE: ClassVar[str] = "engine_counters"

    time: datetime
    model: str
    replica: str
    dp_rank: int
    prefix_cache_queries: int | None
    prefix_cache_hits: int | None
    external_queries: int | None
    external_hits: int | None
    capacity_blocks: int | None
    block_size: int | None
    kv_cache_usage: float | None
    version: int


class SourceRow(msgspec.Struct, frozen=True, gc=False):
    """One life of an engine process as seen by a connector."""

    TABLE: ClassVar[str] = "sources"

    model: str
    replica: str
    dp_rank: int
    incarnation: int
    opened_at: datetime
    closed_at: datetime | None
    closed_reason: str
    engine: str
    wire_era: str
    hash_domain: str
    tenant: str
    first_seq: int
    last_seq: int
    trust: Trust
    trust_since: datetime
    version: int


Row = OccupancyRow | FlowRow | StreamHealthRow | EngineCountersRow | SourceRow
