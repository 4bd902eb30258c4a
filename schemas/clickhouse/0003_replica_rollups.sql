-- The replica tables per minute and per hour, recomputed from the finer table by the statements in rollups/: gauges are
-- those of the last window, *_max the largest, flows are sums; trust, connected, lag and drift_blocks are the worst;
-- `windows` counts the ten-second windows behind a row; `version` is when it was computed (us).

CREATE TABLE IF NOT EXISTS {database}.occupancy_1m
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
    entries_max UInt64 CODEC(Delta, ZSTD(1)),
    blocks_max UInt64 CODEC(Delta, ZSTD(1)),
    tokens_max UInt64 CODEC(T64, ZSTD(1)),
    trust Enum8('complete' = 1, 'partial' = 2, 'degraded' = 3),
    trust_since DateTime64(3, 'UTC') CODEC(ZSTD(1)),
    windows UInt32 CODEC(T64, ZSTD(1)),
    version UInt64 CODEC(Delta, ZSTD(1))
)
ENGINE = {engine:ReplacingMergeTree(version)}
PARTITION BY toYYYYMM(window)
ORDER BY (toStartOfHour(window), model, replica, dp_rank, medium, group_idx, block_size, window)
TTL window + INTERVAL 60 DAY DELETE
SETTINGS ttl_only_drop_parts = 1;

CREATE TABLE IF NOT EXISTS {database}.occupancy_1h
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
    entries_max UInt64 CODEC(Delta, ZSTD(1)),
    blocks_max UInt64 CODEC(Delta, ZSTD(1)),
    tokens_max UInt64 CODEC(T64, ZSTD(1)),
    trust Enum8('complete' = 1, 'partial' = 2, 'degraded' = 3),
    trust_since DateTime64(3, 'UTC') CODEC(ZSTD(1)),
    windows UInt32 CODEC(T64, ZSTD(1)),
    version UInt64 CODEC(Delta, ZSTD(1))
)
ENGINE = {engine:ReplacingMergeTree(version)}
PARTITION BY toYYYYMM(window)
ORDER BY (toStartOfMonth(window), model, replica, dp_rank, medium, group_idx, block_size, window)
TTL window + INTERVAL 2 YEAR DELETE
SETTINGS ttl_only_drop_parts = 1;

CREATE TABLE IF NOT EXISTS {database}.flow_1m
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
    windows UInt32 CODEC(T64, ZSTD(1)),
    version UInt64 CODEC(Delta, ZSTD(1))
)
ENGINE = {engine:ReplacingMergeTree(version)}
PARTITION BY toYYYYMM(window)
ORDER BY (toStartOfHour(window), model, replica, dp_rank, medium, group_idx, window)
TTL window + INTERVAL 60 DAY DELETE
SETTINGS ttl_only_drop_parts = 1;

CREATE TABLE IF NOT EXISTS {database}.flow_1h
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
    windows UInt32 CODEC(T64, ZSTD(1)),
    version UInt64 CODEC(Delta, ZSTD(1))
)
ENGINE = {engine:ReplacingMergeTree(version)}
PARTITION BY toYYYYMM(window)
ORDER BY (toStartOfMonth(window), model, replica, dp_rank, medium, group_idx, window)
TTL window + INTERVAL 2 YEAR DELETE
SETTINGS ttl_only_drop_parts = 1;

CREATE TABLE IF NOT EXISTS {database}.stream_health_1m
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
    windows UInt32 CODEC(T64, ZSTD(1)),
    version UInt64 CODEC(Delta, ZSTD(1))
)
ENGINE = {engine:ReplacingMergeTree(version)}
PARTITION BY toYYYYMM(window)
ORDER BY (toStartOfHour(window), model, replica, dp_rank, window)
TTL window + INTERVAL 60 DAY DELETE
SETTINGS ttl_only_drop_parts = 1;

CREATE TABLE IF NOT EXISTS {database}.stream_health_1h
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
    windows UInt32 CODEC(T64, ZSTD(1)),
    version UInt64 CODEC(Delta, ZSTD(1))
)
ENGINE = {engine:ReplacingMergeTree(version)}
PARTITION BY toYYYYMM(window)
ORDER BY (toStartOfMonth(window), model, replica, dp_rank, window)
TTL window + INTERVAL 2 YEAR DELETE
SETTINGS ttl_only_drop_parts = 1;

-- The first and the last scrape of an engine's counters in each minute. A plain materialised view may write
-- them: a scrape never changes, so writing it twice, or late, changes nothing.
CREATE TABLE IF NOT EXISTS {database}.engine_counters_by_minute
(
    window DateTime('UTC') CODEC(DoubleDelta, ZSTD(1)),
    model LowCardinality(String) CODEC(ZSTD(1)),
    replica LowCardinality(String) CODEC(ZSTD(1)),
    dp_rank UInt16 CODEC(ZSTD(1)),
    first SimpleAggregateFunction(min, Tuple(time DateTime64(3, 'UTC'), queries Int64, hits Int64)) CODEC(ZSTD(1)),
    last SimpleAggregateFunction(max, Tuple(time DateTime64(3, 'UTC'), queries Int64, hits Int64)) CODEC(ZSTD(1))
)
ENGINE = {engine:AggregatingMergeTree()}
PARTITION BY toYYYYMM(window)
ORDER BY (toStartOfHour(window), model, replica, dp_rank, window)
TTL window + INTERVAL 60 DAY DELETE
SETTINGS ttl_only_drop_parts = 1;

-- Writes engine_counters_by_minute.
CREATE MATERIALIZED VIEW IF NOT EXISTS {database}.engine_counters_to_minutes TO {database}.engine_counters_by_minute AS
SELECT
    toStartOfMinute(toDateTime(time)) AS window, model, replica, dp_rank,
    min((time, toInt64(assumeNotNull(prefix_cache_queries)), toInt64(assumeNotNull(prefix_cache_hits)))) AS first,
    max((time, toInt64(assumeNotNull(prefix_cache_queries)), toInt64(assumeNotNull(prefix_cache_hits)))) AS last
FROM {database}.engine_counters
WHERE prefix_cache_queries IS NOT NULL AND prefix_cache_hits IS NOT NULL
GROUP BY window, model, replica, dp_rank;

-- The same in each hour.
CREATE TABLE IF NOT EXISTS {database}.engine_counters_by_hour
(
    window DateTime('UTC') CODEC(DoubleDelta, ZSTD(1)),
    model LowCardinality(String) CODEC(ZSTD(1)),
    replica LowCardinality(String) CODEC(ZSTD(1)),
    dp_rank UInt16 CODEC(ZSTD(1)),
    first SimpleAggregateFunction(min, Tuple(time DateTime64(3, 'UTC'), queries Int64, hits Int64)) CODEC(ZSTD(1)),
    last SimpleAggregateFunction(max, Tuple(time DateTime64(3, 'UTC'), queries Int64, hits Int64)) CODEC(ZSTD(1))
)
ENGINE = {engine:AggregatingMergeTree()}
PARTITION BY toYYYYMM(window)
ORDER BY (toStartOfMonth(window), model, replica, dp_rank, window)
TTL window + INTERVAL 2 YEAR DELETE
SETTINGS ttl_only_drop_parts = 1;

-- Writes engine_counters_by_hour.
CREATE MATERIALIZED VIEW IF NOT EXISTS {database}.engine_counters_to_hours TO {database}.engine_counters_by_hour AS
SELECT
    toStartOfHour(toDateTime(time)) AS window, model, replica, dp_rank,
    min((time, toInt64(assumeNotNull(prefix_cache_queries)), toInt64(assumeNotNull(prefix_cache_hits)))) AS first,
    max((time, toInt64(assumeNotNull(prefix_cache_queries)), toInt64(assumeNotNull(prefix_cache_hits)))) AS last
FROM {database}.engine_counters
WHERE prefix_cache_queries IS NOT NULL AND prefix_cache_hits IS NOT NULL
GROUP BY window, model, replica, dp_rank;
