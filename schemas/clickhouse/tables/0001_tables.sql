-- What the replica agent writes: one row for each window of ten seconds of engine time (or scrape, or incarnation).
-- Reads use FINAL and repeat the time bound on the sort key's first expression, or they read every granule: the views
-- in views/ do both.
--
-- Minutes and hours are recomputed from the finer table by the statements in rollups/: gauges are those of the last
-- window, *_max the largest, flows are sums; trust, connected, lag and drift_blocks are the worst; `windows` counts the
-- ten-second windows behind a row (of the fleet, the rows); `version` is when it was computed (us).

CREATE TABLE IF NOT EXISTS {database}.occupancy_{grain}
(
    window DateTime('UTC') CODEC(DoubleDelta, ZSTD(1)),
    model LowCardinality(String) CODEC(ZSTD(1)),
    replica LowCardinality(String) CODEC(ZSTD(1)),
    dp_rank UInt16 CODEC(ZSTD(1)),
    medium LowCardinality(String) CODEC(ZSTD(1)),
    group_idx UInt16 CODEC(ZSTD(1)),
    block_size UInt32 CODEC(ZSTD(1)),
    entries UInt64 CODEC(Delta, ZSTD(1)),
    blocks UInt64 CODEC(Delta, ZSTD(1)),
    tokens UInt64 CODEC(T64, ZSTD(1)),
    covered_blocks UInt64 CODEC(T64, ZSTD(1)),
    capacity_blocks UInt64 CODEC(Delta, ZSTD(1)),
    store_only Bool,
    at_least Bool,
-- for 1m, 1h
    entries_max UInt64 CODEC(Delta, ZSTD(1)),
    blocks_max UInt64 CODEC(Delta, ZSTD(1)),
    tokens_max UInt64 CODEC(T64, ZSTD(1)),
-- end
    trust Enum8('complete' = 1, 'partial' = 2, 'degraded' = 3),
    trust_since DateTime64(3, 'UTC') CODEC(ZSTD(1)),
-- for 1m, 1h
    windows UInt32 CODEC(T64, ZSTD(1)),
-- end
    version UInt64 CODEC(Delta, ZSTD(1))
)
ENGINE = {engine:ReplacingMergeTree(version)}
PARTITION BY {partition}(window)
ORDER BY ({slice}(window), model, replica, dp_rank, medium, group_idx, block_size, window)
TTL window + INTERVAL {kept} DELETE
SETTINGS ttl_only_drop_parts = 1;

CREATE TABLE IF NOT EXISTS {database}.flow_{grain}
(
    window DateTime('UTC') CODEC(DoubleDelta, ZSTD(1)),
    model LowCardinality(String) CODEC(ZSTD(1)),
    replica LowCardinality(String) CODEC(ZSTD(1)),
    dp_rank UInt16 CODEC(ZSTD(1)),
    medium LowCardinality(String) CODEC(ZSTD(1)),
    group_idx UInt16 CODEC(ZSTD(1)),
    stored_blocks UInt64 CODEC(T64, ZSTD(1)),
    stored_tokens UInt64 CODEC(T64, ZSTD(1)),
    filled_blocks UInt64 CODEC(T64, ZSTD(1)),
    removed_blocks UInt64 CODEC(T64, ZSTD(1)),
    evicted_blocks UInt64 CODEC(T64, ZSTD(1)),
    evicted_tokens UInt64 CODEC(T64, ZSTD(1)),
    cleared_blocks UInt64 CODEC(T64, ZSTD(1)),
    expired_blocks UInt64 CODEC(T64, ZSTD(1)),
    reannounced_blocks UInt64 CODEC(T64, ZSTD(1)),
    unknown_removed_blocks UInt64 CODEC(T64, ZSTD(1)),
    lifetime_hist Array(UInt64) CODEC(T64, ZSTD(1)),
    trust Enum8('complete' = 1, 'partial' = 2, 'degraded' = 3),
    trust_since DateTime64(3, 'UTC') CODEC(ZSTD(1)),
-- for 1m, 1h
    windows UInt32 CODEC(T64, ZSTD(1)),
-- end
    version UInt64 CODEC(Delta, ZSTD(1))
)
ENGINE = {engine:ReplacingMergeTree(version)}
PARTITION BY {partition}(window)
ORDER BY ({slice}(window), model, replica, dp_rank, medium, group_idx, window)
TTL window + INTERVAL {kept} DELETE
SETTINGS ttl_only_drop_parts = 1;

CREATE TABLE IF NOT EXISTS {database}.stream_health_{grain}
(
    window DateTime('UTC') CODEC(DoubleDelta, ZSTD(1)),
    model LowCardinality(String) CODEC(ZSTD(1)),
    replica LowCardinality(String) CODEC(ZSTD(1)),
    dp_rank UInt16 CODEC(ZSTD(1)),
    batches UInt64 CODEC(T64, ZSTD(1)),
    events UInt64 CODEC(T64, ZSTD(1)),
    duplicate_batches UInt64 CODEC(T64, ZSTD(1)),
    gap_batches UInt64 CODEC(T64, ZSTD(1)),
    replayed_batches UInt64 CODEC(T64, ZSTD(1)),
    lost_batches UInt64 CODEC(T64, ZSTD(1)),
    undecodable_events UInt64 CODEC(T64, ZSTD(1)),
    restarts UInt64 CODEC(T64, ZSTD(1)),
    incarnation UInt64 CODEC(Delta, ZSTD(1)),
    last_seq Int64 CODEC(Delta, ZSTD(1)),
    last_batch_at Nullable(DateTime64(3, 'UTC')) CODEC(ZSTD(1)),
    connected Bool,
    lag_seconds Float64 CODEC(ZSTD(1)),
    drift_blocks UInt64 CODEC(T64, ZSTD(1)),
    drift_since Nullable(DateTime64(3, 'UTC')) CODEC(ZSTD(1)),
    trust Enum8('complete' = 1, 'partial' = 2, 'degraded' = 3),
    trust_since DateTime64(3, 'UTC') CODEC(ZSTD(1)),
-- for 1m, 1h
    windows UInt32 CODEC(T64, ZSTD(1)),
-- end
    version UInt64 CODEC(Delta, ZSTD(1))
)
ENGINE = {engine:ReplacingMergeTree(version)}
PARTITION BY {partition}(window)
ORDER BY ({slice}(window), model, replica, dp_rank, window)
TTL window + INTERVAL {kept} DELETE
SETTINGS ttl_only_drop_parts = 1;

CREATE TABLE IF NOT EXISTS {database}.engine_counters
(
    time DateTime64(3, 'UTC') CODEC(DoubleDelta, ZSTD(1)),
    model LowCardinality(String) CODEC(ZSTD(1)),
    replica LowCardinality(String) CODEC(ZSTD(1)),
    dp_rank UInt16 CODEC(ZSTD(1)),
    prefix_cache_queries Nullable(UInt64) CODEC(ZSTD(1)),
    prefix_cache_hits Nullable(UInt64) CODEC(ZSTD(1)),
    external_queries Nullable(UInt64) CODEC(ZSTD(1)),
    external_hits Nullable(UInt64) CODEC(ZSTD(1)),
    capacity_blocks Nullable(UInt64) CODEC(ZSTD(1)),
    block_size Nullable(UInt32) CODEC(ZSTD(1)),
    kv_cache_usage Nullable(Float64) CODEC(ZSTD(1)),
    prefill_seconds Nullable(Float64) CODEC(ZSTD(1)),
    prefill_tokens Nullable(UInt64) CODEC(ZSTD(1)),
    cpu_capacity_tokens Nullable(UInt64) CODEC(ZSTD(1)),
    computed_tokens Nullable(UInt64) CODEC(ZSTD(1)),
    transferred_tokens Nullable(UInt64) CODEC(ZSTD(1)),
    reloaded_tokens Nullable(UInt64) CODEC(ZSTD(1)),
    generation_tokens Nullable(UInt64) CODEC(ZSTD(1)),
    version UInt64 CODEC(Delta, ZSTD(1))
)
ENGINE = {engine:ReplacingMergeTree(version)}
PARTITION BY toYYYYMMDD(time)
ORDER BY (toStartOfHour(time), model, replica, dp_rank, time)
TTL toDateTime(time) + INTERVAL 7 DAY DELETE
SETTINGS ttl_only_drop_parts = 1;

CREATE TABLE IF NOT EXISTS {database}.sources
(
    model LowCardinality(String),
    replica LowCardinality(String),
    dp_rank UInt16,
    incarnation UInt64,
    opened_at DateTime64(3, 'UTC'),
    closed_at Nullable(DateTime64(3, 'UTC')),
    closed_reason LowCardinality(String),
    engine LowCardinality(String),
    wire_era LowCardinality(String),
    hash_domain LowCardinality(String),
    tenant LowCardinality(String),
    role LowCardinality(String),
    first_seq Int64,
    last_seq Int64,
    remarks Array(LowCardinality(String)),
    trust Enum8('complete' = 1, 'partial' = 2, 'degraded' = 3),
    trust_since DateTime64(3, 'UTC'),
    version UInt64
)
ENGINE = {engine:ReplacingMergeTree(version)}
ORDER BY (model, replica, dp_rank, incarnation);

-- What the fleet agent writes: partial figures of one shard of the hash space each; sums over `shard` are the fleet's.
-- `hash_domain` leads the keys, because hashes compare only inside one. hot_prefixes_10s lists, of each shard, hash
-- domain and group, the first prefixes in each window (`fleet.hot_prefixes`); a row of hash_groups says with whom a
-- source was found to hash alike and changes only when that does.
--
-- Minutes and hours have the shards added up. Those of hot prefixes are added up first: the most that a prefix had at a
-- time in all shards does not follow from the most in each. A row lists all prefixes of its period, so that the list is
-- replaced as a whole: which prefixes are among the first ones changes while a period fills.

CREATE TABLE IF NOT EXISTS {database}.fills_{grain}
(
    window DateTime('UTC') CODEC(DoubleDelta, ZSTD(1)),
    hash_domain LowCardinality(String) CODEC(ZSTD(1)),
    model LowCardinality(String) CODEC(ZSTD(1)),
    replica LowCardinality(String) CODEC(ZSTD(1)),
    dp_rank UInt16 CODEC(ZSTD(1)),
    group_idx UInt16 CODEC(ZSTD(1)),
-- for 10s
    shard UInt16 CODEC(ZSTD(1)),
-- end
    filled_blocks UInt64 CODEC(T64, ZSTD(1)),
    filled_tokens UInt64 CODEC(T64, ZSTD(1)),
    promoted_blocks UInt64 CODEC(T64, ZSTD(1)),
    promoted_tokens UInt64 CODEC(T64, ZSTD(1)),
    transferred_blocks UInt64 CODEC(T64, ZSTD(1)),
    transferred_tokens UInt64 CODEC(T64, ZSTD(1)),
    transferred_again_tokens UInt64 CODEC(T64, ZSTD(1)),
    generated_blocks UInt64 CODEC(T64, ZSTD(1)),
    generated_tokens UInt64 CODEC(T64, ZSTD(1)),
    peer_blocks UInt64 CODEC(T64, ZSTD(1)),
    peer_tokens UInt64 CODEC(T64, ZSTD(1)),
    peer_at_receivers_tokens UInt64 CODEC(T64, ZSTD(1)),
    peer_and_evicted_blocks UInt64 CODEC(T64, ZSTD(1)),
    peer_and_evicted_tokens UInt64 CODEC(T64, ZSTD(1)),
    evicted_blocks UInt64 CODEC(T64, ZSTD(1)),
    evicted_tokens UInt64 CODEC(T64, ZSTD(1)),
    evicted_elsewhere_blocks UInt64 CODEC(T64, ZSTD(1)),
    evicted_elsewhere_tokens UInt64 CODEC(T64, ZSTD(1)),
    evicted_at_receivers_tokens UInt64 CODEC(T64, ZSTD(1)),
    cleared_blocks UInt64 CODEC(T64, ZSTD(1)),
    cleared_tokens UInt64 CODEC(T64, ZSTD(1)),
    cold_blocks UInt64 CODEC(T64, ZSTD(1)),
    cold_tokens UInt64 CODEC(T64, ZSTD(1)),
    unknown_blocks UInt64 CODEC(T64, ZSTD(1)),
    unknown_tokens UInt64 CODEC(T64, ZSTD(1)),
    reannounced_blocks UInt64 CODEC(T64, ZSTD(1)),
    reannounced_tokens UInt64 CODEC(T64, ZSTD(1)),
    regret_hist Array(UInt64) CODEC(T64, ZSTD(1)),
    sampled_one_in UInt32 CODEC(ZSTD(1)),
    trust Enum8('complete' = 1, 'partial' = 2, 'degraded' = 3),
-- for 1m, 1h
    windows UInt32 CODEC(T64, ZSTD(1)),
-- end
    version UInt64 CODEC(Delta, ZSTD(1))
)
ENGINE = {engine:ReplacingMergeTree(version)}
PARTITION BY {partition}(window)
-- for 10s
ORDER BY ({slice}(window), hash_domain, model, replica, dp_rank, group_idx, shard, window)
-- end
-- for 1m, 1h
ORDER BY ({slice}(window), hash_domain, model, replica, dp_rank, group_idx, window)
-- end
TTL window + INTERVAL {kept} DELETE
SETTINGS ttl_only_drop_parts = 1;

CREATE TABLE IF NOT EXISTS {database}.redundancy_{grain}
(
    window DateTime('UTC') CODEC(DoubleDelta, ZSTD(1)),
    hash_domain LowCardinality(String) CODEC(ZSTD(1)),
    model LowCardinality(String) CODEC(ZSTD(1)),
    medium LowCardinality(String) CODEC(ZSTD(1)),
    group_idx UInt16 CODEC(ZSTD(1)),
-- for 10s
    shard UInt16 CODEC(ZSTD(1)),
-- end
    owners_1 UInt64 CODEC(T64, ZSTD(1)),
    owners_2 UInt64 CODEC(T64, ZSTD(1)),
    owners_3 UInt64 CODEC(T64, ZSTD(1)),
    owners_4_7 UInt64 CODEC(T64, ZSTD(1)),
    owners_8_up UInt64 CODEC(T64, ZSTD(1)),
    unique_tokens UInt64 CODEC(T64, ZSTD(1)),
    physical_tokens UInt64 CODEC(T64, ZSTD(1)),
    received_tokens UInt64 CODEC(T64, ZSTD(1)),
    sampled_one_in UInt32 CODEC(ZSTD(1)),
    trust Enum8('complete' = 1, 'partial' = 2, 'degraded' = 3),
-- for 1m, 1h
    windows UInt32 CODEC(T64, ZSTD(1)),
-- end
    version UInt64 CODEC(Delta, ZSTD(1))
)
ENGINE = {engine:ReplacingMergeTree(version)}
PARTITION BY {partition}(window)
-- for 10s
ORDER BY ({slice}(window), hash_domain, model, medium, group_idx, shard, window)
-- end
-- for 1m, 1h
ORDER BY ({slice}(window), hash_domain, model, medium, group_idx, window)
-- end
TTL window + INTERVAL {kept} DELETE
SETTINGS ttl_only_drop_parts = 1;

CREATE TABLE IF NOT EXISTS {database}.capacity_curve_{grain}
(
    window DateTime('UTC') CODEC(DoubleDelta, ZSTD(1)),
    hash_domain LowCardinality(String) CODEC(ZSTD(1)),
    model LowCardinality(String) CODEC(ZSTD(1)),
    replica LowCardinality(String) CODEC(ZSTD(1)),
    dp_rank UInt16 CODEC(ZSTD(1)),
    group_idx UInt16 CODEC(ZSTD(1)),
-- for 10s
    shard UInt16 CODEC(ZSTD(1)),
-- end
    needed_hist Array(UInt64) CODEC(T64, ZSTD(1)),
    sampled_one_in UInt32 CODEC(ZSTD(1)),
    trust Enum8('complete' = 1, 'partial' = 2, 'degraded' = 3),
-- for 1m, 1h
    windows UInt32 CODEC(T64, ZSTD(1)),
-- end
    version UInt64 CODEC(Delta, ZSTD(1))
)
ENGINE = {engine:ReplacingMergeTree(version)}
PARTITION BY {partition}(window)
-- for 10s
ORDER BY ({slice}(window), hash_domain, model, replica, dp_rank, group_idx, shard, window)
-- end
-- for 1m, 1h
ORDER BY ({slice}(window), hash_domain, model, replica, dp_rank, group_idx, window)
-- end
TTL window + INTERVAL {kept} DELETE
SETTINGS ttl_only_drop_parts = 1;

CREATE TABLE IF NOT EXISTS {database}.hot_prefixes_10s
(
    window DateTime('UTC') CODEC(DoubleDelta, ZSTD(1)),
    hash_domain LowCardinality(String) CODEC(ZSTD(1)),
    model LowCardinality(String) CODEC(ZSTD(1)),
    group_idx UInt16 CODEC(ZSTD(1)),
    lora LowCardinality(String) CODEC(ZSTD(1)),
    prefix UInt64 CODEC(ZSTD(1)),
    shard UInt16 CODEC(ZSTD(1)),
    depth_blocks UInt32 CODEC(T64, ZSTD(1)),
    owners UInt32 CODEC(T64, ZSTD(1)),
    shared_tokens UInt64 CODEC(T64, ZSTD(1)),
    duplicated_tokens UInt64 CODEC(T64, ZSTD(1)),
    refilled_tokens UInt64 CODEC(T64, ZSTD(1)),
    refilled_tokens_missing UInt64 CODEC(T64, ZSTD(1)),
    sampled_one_in UInt32 CODEC(ZSTD(1)),
    trust Enum8('complete' = 1, 'partial' = 2, 'degraded' = 3),
    version UInt64 CODEC(Delta, ZSTD(1))
)
ENGINE = {engine:ReplacingMergeTree(version)}
PARTITION BY toYYYYMMDD(window)
ORDER BY (toStartOfHour(window), hash_domain, model, group_idx, lora, prefix, shard, window)
TTL window + INTERVAL 7 DAY DELETE
SETTINGS ttl_only_drop_parts = 1;

CREATE TABLE IF NOT EXISTS {database}.hash_groups
(
    hash_domain LowCardinality(String),
    model LowCardinality(String),
    replica LowCardinality(String),
    dp_rank UInt16,
    shard UInt16,
    incarnation UInt64,
    hash_group String,
    alike UInt32,
    alone Bool,
    version UInt64
)
ENGINE = {engine:ReplacingMergeTree(version)}
ORDER BY (hash_domain, model, replica, dp_rank, shard);

-- What cannot be learned from events, per model; from the settings of the worker that started last.
CREATE TABLE IF NOT EXISTS {database}.models
(
    model LowCardinality(String),
    kv_bytes_per_token UInt64,
    version UInt64
)
ENGINE = {engine:ReplacingMergeTree(version)}
ORDER BY model;

-- of 1m, 1h
-- The first and the last scrape of an engine's counters in each minute and each hour. A plain materialised view may write
-- them: a scrape never changes, so writing it twice, or late, changes nothing.
CREATE TABLE IF NOT EXISTS {database}.engine_counters_by_{period}
(
    window DateTime('UTC') CODEC(DoubleDelta, ZSTD(1)),
    model LowCardinality(String) CODEC(ZSTD(1)),
    replica LowCardinality(String) CODEC(ZSTD(1)),
    dp_rank UInt16 CODEC(ZSTD(1)),
    first SimpleAggregateFunction(min, Tuple(time DateTime64(3, 'UTC'), queries Int64, hits Int64, computed Nullable(Int64), transferred Nullable(Int64), reloaded Nullable(Int64), generated Nullable(Int64))) CODEC(ZSTD(1)),
    last SimpleAggregateFunction(max, Tuple(time DateTime64(3, 'UTC'), queries Int64, hits Int64, computed Nullable(Int64), transferred Nullable(Int64), reloaded Nullable(Int64), generated Nullable(Int64))) CODEC(ZSTD(1))
)
ENGINE = {engine:AggregatingMergeTree()}
PARTITION BY {partition}(window)
ORDER BY ({slice}(window), model, replica, dp_rank, window)
TTL window + INTERVAL {kept} DELETE
SETTINGS ttl_only_drop_parts = 1;

-- of 1m, 1h
-- Writes engine_counters_by_{period}.
CREATE MATERIALIZED VIEW IF NOT EXISTS {database}.engine_counters_to_{period}s TO {database}.engine_counters_by_{period} AS
SELECT
    {start}(toDateTime(time)) AS window, model, replica, dp_rank,
    min(scrape) AS first,
    max(scrape) AS last
FROM
(
    SELECT
        time, model, replica, dp_rank,
        (
            time, toInt64(assumeNotNull(prefix_cache_queries)), toInt64(assumeNotNull(prefix_cache_hits)),
            toInt64(computed_tokens), toInt64(transferred_tokens), toInt64(reloaded_tokens), toInt64(generation_tokens)
        ) AS scrape
    FROM {database}.engine_counters
    WHERE prefix_cache_queries IS NOT NULL AND prefix_cache_hits IS NOT NULL
)
GROUP BY window, model, replica, dp_rank;

-- of 1m, 1h
-- Of each hash domain, model and group in one row: the 100 prefixes with most duplicated and the 100 with most refilled
-- tokens of the period, as lists with an entry for each, by `prefix` and `lora`. `shared_tokens` and `duplicated_tokens`
-- are the most at the end of a window, `refilled_tokens` and `refilled_tokens_missing` sums.
CREATE TABLE IF NOT EXISTS {database}.hot_prefixes_{grain}
(
    window DateTime('UTC') CODEC(DoubleDelta, ZSTD(1)),
    hash_domain LowCardinality(String) CODEC(ZSTD(1)),
    model LowCardinality(String) CODEC(ZSTD(1)),
    group_idx UInt16 CODEC(ZSTD(1)),
    lora Array(LowCardinality(String)) CODEC(ZSTD(1)),
    prefix Array(UInt64) CODEC(Delta, ZSTD(1)),
    depth_blocks Array(UInt32) CODEC(T64, ZSTD(1)),
    owners Array(UInt32) CODEC(T64, ZSTD(1)),
    shared_tokens Array(UInt64) CODEC(T64, ZSTD(1)),
    duplicated_tokens Array(UInt64) CODEC(T64, ZSTD(1)),
    refilled_tokens Array(UInt64) CODEC(T64, ZSTD(1)),
    refilled_tokens_missing Array(UInt64) CODEC(T64, ZSTD(1)),
    sampled_one_in Array(UInt32) CODEC(ZSTD(1)),
    trust Array(Enum8('complete' = 1, 'partial' = 2, 'degraded' = 3)) CODEC(ZSTD(1)),
    windows UInt32 CODEC(T64, ZSTD(1)),
    version UInt64 CODEC(Delta, ZSTD(1))
)
ENGINE = {engine:ReplacingMergeTree(version)}
PARTITION BY {partition}(window)
ORDER BY ({slice}(window), hash_domain, model, group_idx, window)
TTL window + INTERVAL {kept} DELETE
SETTINGS ttl_only_drop_parts = 1;

-- Minutes that are to be recomputed, and their hours: those with `noted` above `done`.
CREATE TABLE IF NOT EXISTS {database}.rollups_due
(
    worker String CODEC(ZSTD(1)),
    family LowCardinality(String) CODEC(ZSTD(1)),
    minute DateTime('UTC') CODEC(ZSTD(1)),
    noted SimpleAggregateFunction(max, UInt64) CODEC(ZSTD(1)),
    noted_at SimpleAggregateFunction(max, DateTime('UTC')) CODEC(ZSTD(1)),
    done SimpleAggregateFunction(max, UInt64) CODEC(ZSTD(1))
)
ENGINE = {engine:AggregatingMergeTree()}
ORDER BY (worker, family, minute)
TTL minute + INTERVAL 9 DAY DELETE;

CREATE TABLE IF NOT EXISTS {database}.prefill_settings
(
    model LowCardinality(String),
    since DateTime64(3, 'UTC'),
    prefill_tokens_per_second Nullable(Float64),
    gpus_per_replica Nullable(Float64),
    gpu_hour_price Nullable(Float64),
    currency LowCardinality(String),
    version UInt64
)
ENGINE = {engine:ReplacingMergeTree(version)}
ORDER BY (model, since);

-- The first and the last scrape of each hour that tells how long prefill took. A plain materialised view may write
-- them: a scrape never changes, so writing it twice, or late, changes nothing.
CREATE TABLE IF NOT EXISTS {database}.prefill_counters_by_hour
(
    window DateTime('UTC') CODEC(DoubleDelta, ZSTD(1)),
    model LowCardinality(String) CODEC(ZSTD(1)),
    replica LowCardinality(String) CODEC(ZSTD(1)),
    dp_rank UInt16 CODEC(ZSTD(1)),
    first SimpleAggregateFunction(min, Tuple(time DateTime64(3, 'UTC'), tokens Int64, seconds Float64)) CODEC(ZSTD(1)),
    last SimpleAggregateFunction(max, Tuple(time DateTime64(3, 'UTC'), tokens Int64, seconds Float64)) CODEC(ZSTD(1))
)
ENGINE = {engine:AggregatingMergeTree()}
PARTITION BY toYYYYMM(window)
ORDER BY (toStartOfMonth(window), model, replica, dp_rank, window)
TTL window + INTERVAL 2 YEAR DELETE
SETTINGS ttl_only_drop_parts = 1;

-- Writes prefill_counters_by_hour. Engines that do not count the tokens that they computed count those that they
-- looked up and found.
CREATE MATERIALIZED VIEW IF NOT EXISTS {database}.engine_counters_to_prefill TO {database}.prefill_counters_by_hour AS
SELECT
    toStartOfHour(toDateTime(time)) AS window, model, replica, dp_rank,
    min((time, tokens, seconds)) AS first,
    max((time, tokens, seconds)) AS last
FROM
(
    SELECT
        time, model, replica, dp_rank,
        assumeNotNull(prefill_seconds) AS seconds,
        assumeNotNull(coalesce(
            toInt64(prefill_tokens),
            toInt64(prefix_cache_queries) - toInt64(prefix_cache_hits) - toInt64(ifNull(external_hits, 0))
        )) AS tokens
    FROM {database}.engine_counters
    WHERE prefill_seconds IS NOT NULL
        AND (prefill_tokens IS NOT NULL OR (prefix_cache_queries IS NOT NULL AND prefix_cache_hits IS NOT NULL))
)
GROUP BY window, model, replica, dp_rank;

-- What users call hot prefixes, such as their system prompts; from the settings. A row without a name says that the
-- settings of such a version were written, whatever is in them.
CREATE TABLE IF NOT EXISTS {database}.prefix_names
(
    first_block String,
    name String,
    version UInt64
)
ENGINE = {engine:ReplacingMergeTree(version)}
ORDER BY first_block;

-- What else of the settings decides what a figure means; from the worker that started last.
CREATE TABLE IF NOT EXISTS {database}.fleet_settings
(
    name LowCardinality(String),
    value Float64,
    version UInt64
)
ENGINE = {engine:ReplacingMergeTree(version)}
ORDER BY name;

-- What the worker writes of routers' choices: one row for each request and replica chosen. No state stands behind it,
-- so a record that is read twice is the same row twice.
CREATE TABLE IF NOT EXISTS {database}.choices
(
    time DateTime64(3, 'UTC') CODEC(DoubleDelta, ZSTD(1)),
    model LowCardinality(String) CODEC(ZSTD(1)),
    replica LowCardinality(String) CODEC(ZSTD(1)),
    request_id String CODEC(ZSTD(1)),
    tenant LowCardinality(String) CODEC(ZSTD(1)),
    hash_domain LowCardinality(String) CODEC(ZSTD(1)),
    blocks UInt32 CODEC(T64, ZSTD(1)),
    best_tokens UInt64 CODEC(T64, ZSTD(1)),
    chosen_tokens UInt64 CODEC(T64, ZSTD(1)),
    best_replica LowCardinality(String) CODEC(ZSTD(1)),
    not_judged LowCardinality(String) CODEC(ZSTD(1)),
    stale Bool,
    index_age_seconds Float64 CODEC(ZSTD(1)),
    trust Enum8('complete' = 1, 'partial' = 2, 'degraded' = 3),
    upper_bound Bool,
    version UInt64 CODEC(Delta, ZSTD(1))
)
ENGINE = {engine:ReplacingMergeTree(version)}
PARTITION BY toYYYYMMDD(time)
ORDER BY (toStartOfHour(time), model, replica, request_id)
TTL toDateTime(time) + INTERVAL 7 DAY DELETE
SETTINGS ttl_only_drop_parts = 1;

-- What the worker writes of blocks whose publisher says their bytes: what they take, and how they were used. There are
-- few such sources, so there are no minutes and hours of it: ten seconds are kept for thirty days.
CREATE TABLE IF NOT EXISTS {database}.objects_10s
(
    window DateTime('UTC') CODEC(DoubleDelta, ZSTD(1)),
    model LowCardinality(String) CODEC(ZSTD(1)),
    replica LowCardinality(String) CODEC(ZSTD(1)),
    dp_rank UInt16 CODEC(ZSTD(1)),
    medium LowCardinality(String) CODEC(ZSTD(1)),
    group_idx UInt16 CODEC(ZSTD(1)),
    objects UInt64 CODEC(Delta, ZSTD(1)),
    bytes UInt64 CODEC(Delta, ZSTD(1)),
    capacity_bytes UInt64 CODEC(Delta, ZSTD(1)),
    stored_objects UInt64 CODEC(T64, ZSTD(1)),
    stored_bytes UInt64 CODEC(T64, ZSTD(1)),
    accesses UInt64 CODEC(T64, ZSTD(1)),
    accessed_tokens UInt64 CODEC(T64, ZSTD(1)),
    accessed_bytes UInt64 CODEC(T64, ZSTD(1)),
    hits UInt64 CODEC(T64, ZSTD(1)),
    hit_tokens UInt64 CODEC(T64, ZSTD(1)),
    hit_bytes UInt64 CODEC(T64, ZSTD(1)),
    first_accesses UInt64 CODEC(T64, ZSTD(1)),
    unknown_accesses UInt64 CODEC(T64, ZSTD(1)),
    unlisted_objects UInt64 CODEC(T64, ZSTD(1)),
    uses_hist Array(UInt64) CODEC(T64, ZSTD(1)),
    reuse_hist Array(UInt64) CODEC(T64, ZSTD(1)),
    needed_hist Array(UInt64) CODEC(T64, ZSTD(1)),
    trust Enum8('complete' = 1, 'partial' = 2, 'degraded' = 3),
    trust_since DateTime64(3, 'UTC') CODEC(ZSTD(1)),
    version UInt64 CODEC(Delta, ZSTD(1))
)
ENGINE = {engine:ReplacingMergeTree(version)}
PARTITION BY toYYYYMMDD(window)
ORDER BY (toStartOfHour(window), model, replica, dp_rank, medium, group_idx, window)
TTL window + INTERVAL 30 DAY DELETE
SETTINGS ttl_only_drop_parts = 1;
