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
    """Start of the ten-second window, engine time, UTC."""
    model: str
    """Model name from the configuration."""
    replica: str
    """Replica id from the configuration."""
    dp_rank: int
    """Data-parallel rank of the engine."""
    medium: str
    """Where the blocks are: gpu, cpu, disk, storage, fs, obj, external, or the engine's own name."""
    group_idx: int
    """KV-cache group of a hybrid engine; 0 where there is only one."""
    block_size: int
    """Tokens per block."""
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
    """complete, partial (joined late) or degraded (batches or events are missing)."""
    trust_since: datetime
    """Since when `trust` has this value."""
    version: int
    """Offset of the last event in the figures; the highest version of a key wins."""


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
    """Tokens in `stored_blocks`."""
    filled_blocks: int
    """Distinct blocks whose first copy came."""
    removed_blocks: int
    """Physical copies removed by the engine."""
    evicted_blocks: int
    """Distinct blocks whose last copy was removed by the engine."""
    evicted_tokens: int
    """Tokens in `evicted_blocks`."""
    cleared_blocks: int
    """Physical copies lost by a clear or a restart."""
    expired_blocks: int
    """Fine-grained blocks dropped by us at their age limit, because no event will remove them."""
    reannounced_blocks: int
    """Blocks the engine announced again although they were resident; not in `stored_blocks`."""
    unknown_removed_blocks: int
    """Removals of blocks we did not know: the stream is not complete."""
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
    """Batches applied."""
    events: int
    """Engine events in them."""
    duplicate_batches: int
    """Batches that came again and were ignored."""
    gap_batches: int
    """Batches missing when they were due, whether or not they came later by replay."""
    replayed_batches: int
    """Batches that came by replay."""
    lost_batches: int
    """Batches that will never come."""
    undecodable_events: int
    """Events, or whole frames, skipped because they could not be understood."""
    restarts: int
    """Engine restarts seen."""
    incarnation: int
    """Life of the engine; grows with every life."""
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
    """When the engine was read, UTC."""
    model: str
    replica: str
    dp_rank: int
    prefix_cache_queries: int | None
    """Tokens looked up in the engine's own prefix cache."""
    prefix_cache_hits: int | None
    """Tokens found there."""
    external_queries: int | None
    """Tokens looked up in a connector's cache (offload, shared)."""
    external_hits: int | None
    """Tokens found there."""
    capacity_blocks: int | None
    """GPU blocks the engine has."""
    block_size: int | None
    kv_cache_usage: float | None
    """Share of GPU blocks in use by running requests, 0 to 1."""
    version: int


class SourceRow(msgspec.Struct, frozen=True, gc=False):
    """One life of an engine process as seen by a connector."""

    TABLE: ClassVar[str] = "sources"

    model: str
    replica: str
    dp_rank: int
    incarnation: int
    opened_at: datetime
    """When this life was first seen, UTC."""
    closed_at: datetime | None
    """When it ended; NULL while it lives."""
    closed_reason: str
    """restarted, removed, shutdown or silent; empty while it lives."""
    engine: str
    """vllm, sglang, or empty while nothing seen tells them apart."""
    wire_era: str
    """How the engine encodes its events, e.g. `array-12`, `map`."""
    hash_domain: str
    """model/hash scheme/tenant: hashes compare only inside one domain."""
    tenant: str
    """From the replica's configuration."""
    first_seq: int
    """First sequence number of this life that we have."""
    last_seq: int
    """Last sequence number applied; -1 before the first batch."""
    trust: Trust
    trust_since: datetime
    version: int


Row = OccupancyRow | FlowRow | StreamHealthRow | EngineCountersRow | SourceRow
