-- What the fleet agent writes: partial figures of one shard of the hash space each; sums over `shard` are the fleet's.
-- `hash_domain` leads the keys, because hashes compare only inside one. hot_prefixes_10s lists, of each shard, hash
-- domain and group, the first prefixes in each window (`fleet.hot_prefixes`); a row of hash_groups says with whom a
-- source was found to hash alike and changes only when that does.

CREATE TABLE IF NOT EXISTS {database}.fills_10s
(
    window DateTime('UTC') CODEC(DoubleDelta, ZSTD(1)),
    hash_domain LowCardinality(String) CODEC(ZSTD(1)),
    model LowCardinality(String) CODEC(ZSTD(1)),
    replica LowCardinality(String) CODEC(ZSTD(1)),
    dp_rank UInt16 CODEC(ZSTD(1)),
    group_idx UInt16 CODEC(ZSTD(1)),
    shard UInt16 CODEC(ZSTD(1)),
    filled_blocks UInt64 CODEC(T64, ZSTD(1)),
    filled_tokens UInt64 CODEC(T64, ZSTD(1)),
    promoted_blocks UInt64 CODEC(T64, ZSTD(1)),
    promoted_tokens UInt64 CODEC(T64, ZSTD(1)),
    peer_blocks UInt64 CODEC(T64, ZSTD(1)),
    peer_tokens UInt64 CODEC(T64, ZSTD(1)),
    peer_and_evicted_blocks UInt64 CODEC(T64, ZSTD(1)),
    peer_and_evicted_tokens UInt64 CODEC(T64, ZSTD(1)),
    evicted_blocks UInt64 CODEC(T64, ZSTD(1)),
    evicted_tokens UInt64 CODEC(T64, ZSTD(1)),
    evicted_elsewhere_blocks UInt64 CODEC(T64, ZSTD(1)),
    evicted_elsewhere_tokens UInt64 CODEC(T64, ZSTD(1)),
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
    version UInt64 CODEC(Delta, ZSTD(1))
)
ENGINE = {engine:ReplacingMergeTree(version)}
PARTITION BY toYYYYMMDD(window)
ORDER BY (toStartOfHour(window), hash_domain, model, replica, dp_rank, group_idx, shard, window)
TTL window + INTERVAL 7 DAY DELETE
SETTINGS ttl_only_drop_parts = 1;

CREATE TABLE IF NOT EXISTS {database}.redundancy_10s
(
    window DateTime('UTC') CODEC(DoubleDelta, ZSTD(1)),
    hash_domain LowCardinality(String) CODEC(ZSTD(1)),
    model LowCardinality(String) CODEC(ZSTD(1)),
    medium LowCardinality(String) CODEC(ZSTD(1)),
    group_idx UInt16 CODEC(ZSTD(1)),
    shard UInt16 CODEC(ZSTD(1)),
    owners_1 UInt64 CODEC(T64, ZSTD(1)),
    owners_2 UInt64 CODEC(T64, ZSTD(1)),
    owners_3 UInt64 CODEC(T64, ZSTD(1)),
    owners_4_7 UInt64 CODEC(T64, ZSTD(1)),
    owners_8_up UInt64 CODEC(T64, ZSTD(1)),
    unique_tokens UInt64 CODEC(T64, ZSTD(1)),
    physical_tokens UInt64 CODEC(T64, ZSTD(1)),
    sampled_one_in UInt32 CODEC(ZSTD(1)),
    trust Enum8('complete' = 1, 'partial' = 2, 'degraded' = 3),
    version UInt64 CODEC(Delta, ZSTD(1))
)
ENGINE = {engine:ReplacingMergeTree(version)}
PARTITION BY toYYYYMMDD(window)
ORDER BY (toStartOfHour(window), hash_domain, model, medium, group_idx, shard, window)
TTL window + INTERVAL 7 DAY DELETE
SETTINGS ttl_only_drop_parts = 1;

CREATE TABLE IF NOT EXISTS {database}.capacity_curve_10s
(
    window DateTime('UTC') CODEC(DoubleDelta, ZSTD(1)),
    hash_domain LowCardinality(String) CODEC(ZSTD(1)),
    model LowCardinality(String) CODEC(ZSTD(1)),
    replica LowCardinality(String) CODEC(ZSTD(1)),
    dp_rank UInt16 CODEC(ZSTD(1)),
    group_idx UInt16 CODEC(ZSTD(1)),
    shard UInt16 CODEC(ZSTD(1)),
    needed_hist Array(UInt64) CODEC(T64, ZSTD(1)),
    sampled_one_in UInt32 CODEC(ZSTD(1)),
    trust Enum8('complete' = 1, 'partial' = 2, 'degraded' = 3),
    version UInt64 CODEC(Delta, ZSTD(1))
)
ENGINE = {engine:ReplacingMergeTree(version)}
PARTITION BY toYYYYMMDD(window)
ORDER BY (toStartOfHour(window), hash_domain, model, replica, dp_rank, group_idx, shard, window)
TTL window + INTERVAL 7 DAY DELETE
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
