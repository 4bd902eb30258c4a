"""One struct per ClickHouse table that the pipeline writes; fields are the columns, in order.

Every table is a ReplacingMergeTree(version): a row is identified by its key columns and the highest
`version` (an offset of the topic the row comes from) wins, so writing a row twice changes nothing.
"""

from __future__ import annotations

from datetime import datetime
from typing import ClassVar

import msgspec

from schemas.trust import Trust


class OccupancyRow(msgspec.Struct, frozen=True, gc=False):
    """Blocks resident at the end of a window, per medium, group and granularity."""

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
    """Capacity that the engine reports, on the GPU in its blocks, on the CPU in blocks of this size; 0 when
    unknown."""
    store_only: bool
    """The engine never announces removals on this medium: the figures are upper bounds."""
    at_least: bool
    """Since the last clear a prompt was announced again while it was resident, and taken for an announcement:
    if it was a second copy, the figures are too low (`worker.reannounced`)."""
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
    """Physical copies removed by the engine."""
    evicted_blocks: int
    """Distinct blocks whose last copy was removed by the engine."""
    evicted_tokens: int
    """Tokens in `evicted_blocks`."""
    cleared_blocks: int
    """Physical copies lost by a clear or a restart."""
    expired_blocks: int
    """Fine-grained blocks that we dropped at their age limit, because no event will remove them."""
    reannounced_blocks: int
    """Blocks that the engine announced again although they were resident; not in `stored_blocks`."""
    unknown_removed_blocks: int
    """Removals of blocks that we did not know: the stream is not complete."""
    lifetime_hist: list[int]
    """Distinct evicted blocks by lifetime: bucket k counts [2**(k-11), 2**(k-10)) seconds, trailing
    zeros cut (`pipeline.residency.histogram`)."""
    trust: Trust
    trust_since: datetime
    version: int


class StreamHealthRow(msgspec.Struct, frozen=True, gc=False):
    """Health of the event stream of a source in a window."""

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
    """Batches that did not come live when they were due: `lost_batches`, and batches that came by replay
    after this engine session had been seen live (their live copy, if it came later, is a duplicate)."""
    replayed_batches: int
    """Batches applied that came by replay: filled gaps, and batches published before first contact."""
    lost_batches: int
    """Batches that will never come: ranges of `gap` events, and numbers that the log lacks without one."""
    undecodable_events: int
    """Events, whole frames or whole records, skipped because nobody understood them."""
    restarts: int
    """Engine sessions that ended because the engine started again (`closed` with reason restarted)."""
    incarnation: int
    """Number of the engine session; each one has a greater number than those before."""
    last_seq: int
    """Last sequence number of this session that was applied or given up; -1 before the first batch."""
    last_batch_at: datetime | None
    """Event time of the last batch applied in this session; NULL before the first one."""
    connected: bool
    """False if the connector reported that it does not reach the source, or closed it, and no live batch
    has come since."""
    lag_seconds: float
    """Largest received_at - ts of live batches in the window."""
    drift_blocks: int
    """Physical GPU blocks beyond the engine's capacity: at least this many are wrong (docs/exactness.md)."""
    drift_since: datetime | None
    """Start of the first of the consecutive windows that end with `drift_blocks` above 0; NULL at 0."""
    trust: Trust
    trust_since: datetime
    version: int


class ObjectsRow(msgspec.Struct, frozen=True, gc=False):
    """Blocks whose publisher says how many bytes they take, and how they were used, per medium and group."""

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
    """Bytes that the publisher declares for the whole medium, all models and groups; 0 when unknown."""
    stored_objects: int
    """Objects that came and were not held."""
    stored_bytes: int
    """Bytes in `stored_objects`."""
    accesses: int
    """Uses of objects that were held, as the publisher reports them: what its own eviction goes by."""
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
    """Of `accesses`, the first ones of their objects since they came."""
    unknown_accesses: int
    """Uses of objects that were not held, or are not known one by one; not in `accesses`."""
    unlisted_objects: int
    """Stores beyond `worker.max_itemised_blocks`: in none of the figures."""
    uses_hist: list[int]
    """Objects that the publisher removed, by their accesses: element 0 counts those without any, element k
    those with 2**(k-1) or more and less than 2**k; trailing zeros cut."""
    reuse_hist: list[int]
    """`accesses` by the time since the object came or was accessed before; buckets like `lifetime_hist`."""
    needed_hist: list[int]
    """`accesses` by the least cache that would have kept the object, if what was used longest ago leaves
    first: element k counts those for which 2**k MiB suffice and, from 1 on, 2**(k-1) do not; trailing zeros
    cut."""
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
    """GPU blocks that the engine has."""
    block_size: int | None
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
    """Tokens of prompts to be taken from another engine, or from a store that does not say what it is. They
    count when a request is admitted, so those that then fail to come are in it."""
    reloaded_tokens: int | None
    """The same from lower tiers of its own: the host's memory, disks."""
    generation_tokens: int | None
    """Tokens that it generated."""
    version: int


class SourceRow(msgspec.Struct, frozen=True, gc=False):
    """One engine session (from a start of the engine process to its next start) as a connector saw it, from
    its first batch on."""

    TABLE: ClassVar[str] = "sources"

    model: str
    replica: str
    dp_rank: int
    incarnation: int
    opened_at: datetime
    """When this session was first seen, UTC."""
    closed_at: datetime | None
    """When it ended; NULL while it is open."""
    closed_reason: str
    """restarted, removed, silent, superseded (another session began and nobody reported the end of this one),
    or forgotten (nothing came for `worker.forget_seconds`); empty while it is open."""
    engine: str
    """Name of the engine (`connectors/engines`), e.g. vllm; empty while no event has shown which it is."""
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
    """What is unusual about the stream of this session, e.g. `unknown_type:BlockMoved` or `mixed_ranks`."""
    trust: Trust
    trust_since: datetime
    version: int


class FillsRow(msgspec.Struct, frozen=True, gc=False):
    """Why the blocks of a window had to be filled on the GPU of a source, in one shard of the hash space."""

    TABLE: ClassVar[str] = "fills_10s"

    window: datetime
    """Start of the ten-second window, engine time, UTC."""
    hash_domain: str
    """model/hash scheme/tenant: hashes compare only inside one domain."""
    model: str
    replica: str
    dp_rank: int
    group_idx: int
    shard: int
    """Part of the hash space (partition of the residency topic); sums over shards are the source's."""
    filled_blocks: int
    """Distinct blocks whose first copy came: the sum of all causes but `reannounced`."""
    filled_tokens: int
    """Tokens in `filled_blocks`."""
    promoted_blocks: int
    """Resident here on a lower tier: a hit there."""
    promoted_tokens: int
    """Tokens in `promoted_blocks`."""
    transferred_blocks: int
    """Came from another engine or a store: computed elsewhere, not here. Only of replicas that receive KV."""
    transferred_tokens: int
    """Tokens in `transferred_blocks`."""
    transferred_again_tokens: int
    """Of these, tokens that had been here and were evicted within the horizon: with more cache here they
    would not have come twice."""
    generated_blocks: int
    """Decoding completed it, as far as the stream shows: no request looked it up."""
    generated_tokens: int
    """Tokens in `generated_blocks`."""
    peer_blocks: int
    """Not lost here, but another source held it then: routing, or a shared tier, would have saved it."""
    peer_tokens: int
    """Tokens in `peer_blocks`."""
    peer_at_receivers_tokens: int
    """Of these, tokens that only sources held which receive KV, as this one does not: no routing matter."""
    peer_and_evicted_blocks: int
    """Another source held it, and it was evicted here within the horizon: routing or more cache."""
    peer_and_evicted_tokens: int
    """Tokens in `peer_and_evicted_blocks`."""
    evicted_blocks: int
    """Evicted here within the horizon, held by nobody: more cache here would have saved it."""
    evicted_tokens: int
    evicted_elsewhere_blocks: int
    """Only others had it, and evicted it: more cache there, and routing."""
    evicted_elsewhere_tokens: int
    """Tokens in `evicted_elsewhere_blocks`."""
    evicted_at_receivers_tokens: int
    """Of these, tokens that only sources had evicted which receive KV, as this one does not: no matter of its
    capacity or routing."""
    cleared_blocks: int
    """Lost by a clear or a restart: the warm-up cost of a rollout."""
    cleared_tokens: int
    """Tokens in `cleared_blocks`."""
    cold_blocks: int
    """Not seen in the fleet within the horizon."""
    cold_tokens: int
    """Tokens in `cold_blocks`."""
    unknown_blocks: int
    """No cause known, but this source is or was not complete."""
    unknown_tokens: int
    """Tokens in `unknown_blocks`."""
    reannounced_blocks: int
    """Already resident here: no fill."""
    reannounced_tokens: int
    """Tokens in `reannounced_blocks`."""
    regret_hist: list[int]
    """Evicted blocks filled again, here or elsewhere, by the time between; buckets like `lifetime_hist`."""
    sampled_one_in: int
    """Figures rest on one block in this many and are scaled up by it; 1: all blocks count."""
    trust: Trust
    version: int


class RedundancyRow(msgspec.Struct, frozen=True, gc=False):
    """How many sources held the same blocks at the end of a window, in one shard of the hash space."""

    TABLE: ClassVar[str] = "redundancy_10s"

    window: datetime
    hash_domain: str
    model: str
    medium: str
    group_idx: int
    shard: int
    owners_1: int
    """Distinct blocks that one source held. Here and below, one less counts where both some that receive KV
    and others held the block: a transfer needs that copy."""
    owners_2: int
    """Distinct blocks that two sources held."""
    owners_3: int
    """Distinct blocks that three sources held."""
    owners_4_7: int
    """Distinct blocks that four to seven sources held."""
    owners_8_up: int
    """Distinct blocks that eight or more sources held."""
    unique_tokens: int
    """Tokens in distinct blocks, each once."""
    physical_tokens: int
    """Tokens in distinct blocks, once for each source that held them."""
    received_tokens: int
    """Of these, a copy of each block that both some sources which receive KV and others held."""
    sampled_one_in: int
    trust: Trust
    """Worst trust of the sources of the hash domain that changed something here."""
    version: int


class CapacityCurveRow(msgspec.Struct, frozen=True, gc=False):
    """Extra cache that would have kept the blocks that a source evicted and filled again in a window."""

    TABLE: ClassVar[str] = "capacity_curve_10s"

    window: datetime
    hash_domain: str
    model: str
    replica: str
    dp_rank: int
    group_idx: int
    shard: int
    needed_hist: list[int]
    """Tokens filled again, by the extra cache that would have kept them: element k (from 0) counts those for
    which 2**k tokens suffice and 2**(k-1) may not; trailing zeros cut."""
    sampled_one_in: int
    trust: Trust
    version: int


class HotPrefixRow(msgspec.Struct, frozen=True, gc=False):
    """A prefix with many copies across replicas at the end of a window, or with much filled again in it."""

    TABLE: ClassVar[str] = "hot_prefixes_10s"

    window: datetime
    hash_domain: str
    model: str
    group_idx: int
    lora: str
    """LoRA adapter that the prefix belongs to; empty without one."""
    prefix: int
    """Hash of the first block of the chain."""
    shard: int
    depth_blocks: int
    """Blocks of the chain up to and including the deepest one that several sources held, or that was filled
    again; 65,535 at most."""
    owners: int
    """The most sources that held one and the same block of it."""
    shared_tokens: int
    """Tokens in blocks that more than one source held, each block once."""
    duplicated_tokens: int
    """Copies beyond the first; over all prefixes they add up to physical minus unique tokens."""
    refilled_tokens: int
    """Tokens filled again, for all causes that count as avoidable."""
    refilled_tokens_missing: int
    """At most this many are missing from `refilled_tokens`; 0: exact."""
    sampled_one_in: int
    trust: Trust
    """Worst trust of the sources of the hash domain that hold or lost something here."""
    version: int
    """Offset of the record that closed the window."""


class ChoiceRow(msgspec.Struct, frozen=True, gc=False):
    """A router's choice of a replica for a request, as an index judged it when it was posted."""

    TABLE: ClassVar[str] = "choices"

    time: datetime
    """When the router decided, UTC; when it posted where it does not say."""
    model: str
    """Model that was asked for."""
    replica: str
    """Replica that the router chose."""
    request_id: str
    """The router's own name for the request."""
    tenant: str
    """Tenant whose replicas were compared."""
    hash_domain: str
    """Hash domain whose replicas were compared; empty: all of the model and tenant."""
    blocks: int
    """Blocks of the prompt that the router named."""
    best_tokens: int
    """Tokens of the longest match of any replica, on all tiers; 0 where the choice is not judged."""
    chosen_tokens: int
    """Tokens of the chosen replica's match."""
    best_replica: str
    """A replica with the longest match, the chosen one if it is among them; empty if nobody held any."""
    not_judged: str
    """Why the choice is not compared, unknown_replica or share; empty: it is."""
    stale: bool
    """The index was more than five seconds behind the log."""
    index_age_seconds: float
    """How far it was behind."""
    trust: Trust
    """Worst trust of the chosen replica's sources and of those of `best_replica`."""
    upper_bound: bool
    """Some of the longest match is on a medium from which blocks leave unsaid: less may be lost."""
    version: int
    """2**63 - 1 minus the offset of the record: of a request posted again the first record counts."""


class HashGroupRow(msgspec.Struct, frozen=True, gc=False):
    """Sources that hash like this one, as far as one shard of the hash space shows."""

    TABLE: ClassVar[str] = "hash_groups"

    hash_domain: str
    model: str
    replica: str
    dp_rank: int
    shard: int
    incarnation: int
    hash_group: str
    """Sources with the same value are proven to hash alike. It names the first of their sessions that was
    seen, as replica/rank@incarnation."""
    alike: int
    """Other sources of the group."""
    alone: bool
    """Shares no block with any other, though its traffic and theirs keep coming back to first blocks."""
    version: int
    """Offset of the last record applied."""


class ModelRow(msgspec.Struct, frozen=True, gc=False):
    """Settings of a model."""

    TABLE: ClassVar[str] = "models"

    model: str
    kv_bytes_per_token: int
    """KV-cache bytes of one token, all layers and groups; 0 when not configured."""
    version: int
    """When the worker that wrote it started (ms since the epoch)."""


class PrefillSettingsRow(msgspec.Struct, frozen=True, gc=False):
    """What the settings say of a model's prefill, from a time on. Unchanged settings add no row."""

    TABLE: ClassVar[str] = "prefill_settings"

    model: str
    since: datetime
    """When the first worker with these settings started."""
    prefill_tokens_per_second: float | None
    """Prompt tokens that a replica computes in a second; NULL when not configured."""
    gpus_per_replica: float | None
    """GPUs of a replica, all its ranks together; NULL when not configured."""
    gpu_hour_price: float | None
    """Price of an hour of one GPU; NULL when not configured."""
    currency: str
    """Of the price."""
    version: int
    """When the worker that wrote it started (ms since the epoch)."""


class PrefixNameRow(msgspec.Struct, frozen=True, gc=False):
    """What the settings call a hot prefix."""

    TABLE: ClassVar[str] = "prefix_names"

    first_block: str
    """Hash of its first block, 16 hexadecimal digits; empty in the row that every version has."""
    name: str
    """Empty in the row that every version has."""
    version: int
    """When the worker that wrote it started (ms since the epoch)."""


class FleetSettingRow(msgspec.Struct, frozen=True, gc=False):
    """A setting that decides what figures of the fleet mean."""

    TABLE: ClassVar[str] = "fleet_settings"

    name: str
    """`horizon_seconds`: for how long the fleet agent remembers what was lost (`fleet.horizon_seconds`)."""
    value: float
    """In the unit that its name has."""
    version: int
    """When the worker that wrote it started (ms since the epoch)."""


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
