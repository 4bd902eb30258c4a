"""One struct per ClickHouse table that the pipeline writes; fields are the columns, in order.

Every table is a ReplacingMergeTree(version): a row is identified by its key columns and the highest
`version` (an offset of the topic the row comes from) wins, so writing a row twice changes nothing.
"""

from __future__ import annotations

from datetime import datetime
from typing import ClassVar

import msgspec

from schemas.fleet_rows import CapacityCurveRow, ChoiceRow, FillsRow, HotPrefixRow, RedundancyRow
from schemas.setting_rows import FleetSettingRow, HashGroupRow, ModelRow, PrefillSettingsRow, PrefixNameRow
from schemas.trust import Trust


class OccupancyRow(msgspec.Struct, frozen=True, gc=False):
    """Blocks resident at the end of a window, per medium, group and granularity."""

    TABLE: ClassVar[str] = "occupancy_10s"

    window: datetime
    """Start of the ten-second window, engine time."""
    model: str
    """Model name from the configuration."""
    replica: str
    """Replica id from the configuration."""
    dp_rank: int
    """Data-parallel rank of the engine."""
    medium: str
    """gpu, cpu, disk, storage, fs, obj, external, or the engine's own name."""
    group_idx: int
    """KV-cache group of a hybrid engine; 0: the only one."""
    block_size: int
    """Tokens per block."""
    entries: int
    """Physical copies."""
    blocks: int
    """Distinct hashes."""
    tokens: int
    """Tokens in distinct blocks, without those that a coarser resident block covers."""
    covered_blocks: int
    """Fine-grained blocks left out, as a resident coarse block covers them."""
    capacity_blocks: int
    """Blocks that the engine has room for, on the GPU its own, on the CPU of this size; 0: unknown."""
    store_only: bool
    """The engine announces no removals on this medium: figures are upper bounds."""
    at_least: bool
    """Since the last clear a resident prompt was announced again and not counted (`worker.reannounced`): if
    it was a second copy, figures are too low."""
    trust: Trust
    """complete, partial (kvlens started after the engine) or degraded (batches or events are missing)."""
    trust_since: datetime
    """Since when `trust` has this value."""
    version: int
    """Offset of the last record in the figures; the highest version of a key wins."""


class FlowRow(msgspec.Struct, frozen=True, gc=False):
    """Blocks that came and left in a window, per medium and group."""

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
    """Physical copies that the engine removed."""
    evicted_blocks: int
    """Distinct blocks whose last copy the engine removed."""
    evicted_tokens: int
    """Tokens in `evicted_blocks`."""
    cleared_blocks: int
    """Physical copies lost by a clear or a restart."""
    expired_blocks: int
    """Fine-grained blocks dropped at their age limit."""
    reannounced_blocks: int
    """Resident blocks that the engine announced again; not in `stored_blocks`."""
    unknown_removed_blocks: int
    """Removals of unknown blocks: the stream is not complete."""
    lifetime_hist: list[int]
    """Distinct evicted blocks by lifetime: bucket k counts [2**(k-11), 2**(k-10)) seconds; trailing zeros
    cut."""
    trust: Trust
    trust_since: datetime
    version: int


class StreamHealthRow(msgspec.Struct, frozen=True, gc=False):
    """Health of a source's event stream in a window."""

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
    """Batches that did not come live when due: `lost_batches`, and those replayed after the session had been
    seen live."""
    replayed_batches: int
    """Batches that came by replay: filled gaps, and those published before first contact."""
    lost_batches: int
    """Batches that will never come: of `gap` events, and numbers missing in the log."""
    undecodable_events: int
    """Events, whole frames or records that nobody understood: skipped."""
    restarts: int
    """Engine sessions that a new start of the engine ended (`closed`, `restarted`)."""
    incarnation: int
    """Number of the engine session, greater than those before."""
    last_seq: int
    """Last sequence number applied or given up; -1 before the first batch."""
    last_batch_at: datetime | None
    """Event time of the last batch applied; NULL before the first one."""
    connected: bool
    """False once the connector reports the source unreachable or closed, until a live batch comes."""
    lag_seconds: float
    """Largest received_at - ts of live batches in the window."""
    drift_blocks: int
    """Physical GPU blocks beyond the engine's capacity: at least so many are wrong."""
    drift_since: datetime | None
    """Start of the window since which `drift_blocks` is above 0; NULL at 0."""
    trust: Trust
    trust_since: datetime
    version: int


class ObjectsRow(msgspec.Struct, frozen=True, gc=False):
    """Blocks whose publisher says their bytes and uses, per medium and group."""

    TABLE: ClassVar[str] = "objects_10s"

    window: datetime
    model: str
    replica: str
    dp_rank: int
    medium: str
    group_idx: int
    objects: int
    """Held at the end of the window."""
    bytes: int
    """Bytes that they take."""
    capacity_bytes: int
    """Bytes declared for the whole medium, all models and groups; 0: unknown."""
    stored_objects: int
    """Objects that came, not held before."""
    stored_bytes: int
    """Bytes in `stored_objects`."""
    accesses: int
    """Uses of held objects, as the publisher reports them."""
    accessed_tokens: int
    """Tokens in `accesses`."""
    accessed_bytes: int
    """Bytes in `accesses`."""
    hits: int
    """Of `accesses`, those known to be one request each that found the object."""
    hit_tokens: int
    """Tokens in `hits`."""
    hit_bytes: int
    """Bytes in `hits`."""
    first_accesses: int
    """Of `accesses`, the first of each object since it came."""
    unknown_accesses: int
    """Uses of objects not held, or not known one by one; not in `accesses`."""
    unlisted_objects: int
    """Stores beyond `worker.max_itemised_blocks`: in no other figure."""
    uses_hist: list[int]
    """Objects that the publisher removed, by accesses: element 0 counts those without any, k those with
    [2**(k-1), 2**k); trailing zeros cut."""
    reuse_hist: list[int]
    """`accesses` by the time since the object came or the last one; buckets like `lifetime_hist`."""
    needed_hist: list[int]
    """`accesses` by the least LRU cache that would have kept the object: element k counts those for which
    2**k MiB suffice and, from 1 on, 2**(k-1) do not; trailing zeros cut."""
    trust: Trust
    trust_since: datetime
    version: int


class EngineCountersRow(msgspec.Struct, frozen=True, gc=False):
    """One scrape of an engine's own counters (cumulative tokens; NULL: not exported)."""

    TABLE: ClassVar[str] = "engine_counters"

    time: datetime
    """When the engine was read."""
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
    """GPU blocks that the engine has."""
    block_size: int | None
    """Tokens per GPU block."""
    kv_cache_usage: float | None
    """Share of GPU blocks in use by running requests, 0 to 1."""
    prefill_seconds: float | None
    """Time of prefill since the engine started, as the engine counts it (docs/figures.md)."""
    prefill_tokens: int | None
    """Tokens of prompts computed in that time: those of no cache."""
    cpu_capacity_tokens: int | None
    """Tokens that the CPU tier has room for."""
    computed_tokens: int | None
    """Tokens of prompts that the engine computed, of all requests that have begun to answer."""
    transferred_tokens: int | None
    """Tokens of prompts to come from another engine, or a store of unknown kind. They count when a request is
    admitted, also those that then fail to come."""
    reloaded_tokens: int | None
    """The same from lower tiers of its own: the host's memory, disks."""
    generation_tokens: int | None
    """Tokens that it generated."""
    version: int


class SourceRow(msgspec.Struct, frozen=True, gc=False):
    """One engine session (from a start of the engine process to the next) as a connector saw it, from its
    first batch on."""

    TABLE: ClassVar[str] = "sources"

    model: str
    replica: str
    dp_rank: int
    incarnation: int
    opened_at: datetime
    """When this session was first seen."""
    closed_at: datetime | None
    """When it ended; NULL while it is open."""
    closed_reason: str
    """restarted, removed, silent, superseded (another session began, the end of this one was not reported) or
    forgotten (nothing came for `worker.forget_seconds`); empty while it is open."""
    engine: str
    """Name of the engine (`connectors/engines`), e.g. vllm; empty: not known yet."""
    wire_era: str
    """How the engine encodes its events, e.g. `array-12`, `map`."""
    hash_domain: str
    """model/hash scheme/tenant: hashes compare only inside one domain."""
    tenant: str
    """From the replica's configuration."""
    role: str
    """prefill, decode or both, as settings or labels said last; empty: nobody says."""
    first_seq: int
    """First sequence number that we have of this session."""
    last_seq: int
    """Last sequence number applied or given up; -1 before the first batch."""
    remarks: list[str]
    """What is unusual about the stream, e.g. `unknown_type:BlockMoved`."""
    trust: Trust
    trust_since: datetime
    version: int


Row = (
    OccupancyRow
    | FlowRow
    | StreamHealthRow
    | ObjectsRow
    | EngineCountersRow
    | SourceRow
    | FillsRow
    | RedundancyRow
    | CapacityCurveRow
    | HotPrefixRow
    | HashGroupRow
    | ChoiceRow
    | ModelRow
    | PrefillSettingsRow
    | PrefixNameRow
    | FleetSettingRow
)
