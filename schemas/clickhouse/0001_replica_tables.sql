-- What the replica agent writes: one row for each window of ten seconds of engine time (or scrape, or incarnation).
-- Reads use FINAL and repeat the time bound on the sort key's first expression, or they read every granule: the views
-- of 0005_views.sql do both.

CREATE TABLE IF NOT EXISTS {database}.occupancy_10s
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
    trust Enum8('complete' = 1, 'partial' = 2, 'degraded' = 3),
    trust_since DateTime64(3, 'UTC') CODEC(ZSTD(1)),
    version UInt64 CODEC(Delta, ZSTD(1))
)
ENGINE = {engine:ReplacingMergeTree(version)}
PARTITION BY toYYYYMMDD(window)
ORDER BY (toStartOfHour(window), model, replica, dp_rank, medium, group_idx, block_size, window)
TTL window + INTERVAL 7 DAY DELETE
SETTINGS ttl_only_drop_parts = 1;

CREATE TABLE IF NOT EXISTS {database}.flow_10s
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
    version UInt64 CODEC(Delta, ZSTD(1))
)
ENGINE = {engine:ReplacingMergeTree(version)}
PARTITION BY toYYYYMMDD(window)
ORDER BY (toStartOfHour(window), model, replica, dp_rank, medium, group_idx, window)
TTL window + INTERVAL 7 DAY DELETE
SETTINGS ttl_only_drop_parts = 1;

CREATE TABLE IF NOT EXISTS {database}.stream_health_10s
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
    version UInt64 CODEC(Delta, ZSTD(1))
)
ENGINE = {engine:ReplacingMergeTree(version)}
PARTITION BY toYYYYMMDD(window)
ORDER BY (toStartOfHour(window), model, replica, dp_rank, window)
TTL window + INTERVAL 7 DAY DELETE
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
    first_seq Int64,
    last_seq Int64,
    trust Enum8('complete' = 1, 'partial' = 2, 'degraded' = 3),
    trust_since DateTime64(3, 'UTC'),
    version UInt64
)
ENGINE = {engine:ReplacingMergeTree(version)}
ORDER BY (model, replica, dp_rank, incarnation);
