-- The fleet tables per minute and per hour, with the shards added up, recomputed by the statements in rollups/: flows
-- are sums, redundancy is that of each shard's last window, trust is the worst; `windows` counts the rows behind a row;
-- `version` is when it was computed (us).
--
-- Shards of hot prefixes are added up first: the most that a prefix had at a time in all shards does not follow from the
-- most in each. A row lists all prefixes of its period, so that the list is replaced as a whole: which prefixes are
-- among the first ones changes while a period fills.

CREATE TABLE IF NOT EXISTS {database}.fills_1m
(
    window DateTime('UTC') CODEC(DoubleDelta, ZSTD(1)),
    hash_domain LowCardinality(String) CODEC(ZSTD(1)),
    model LowCardinality(String) CODEC(ZSTD(1)),
    replica LowCardinality(String) CODEC(ZSTD(1)),
    dp_rank UInt16 CODEC(ZSTD(1)),
    group_idx UInt16 CODEC(ZSTD(1)),
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
    windows UInt32 CODEC(T64, ZSTD(1)),
    version UInt64 CODEC(Delta, ZSTD(1))
)
ENGINE = {engine:ReplacingMergeTree(version)}
PARTITION BY toYYYYMM(window)
ORDER BY (toStartOfHour(window), hash_domain, model, replica, dp_rank, group_idx, window)
TTL window + INTERVAL 60 DAY DELETE
SETTINGS ttl_only_drop_parts = 1;

CREATE TABLE IF NOT EXISTS {database}.fills_1h
(
    window DateTime('UTC') CODEC(DoubleDelta, ZSTD(1)),
    hash_domain LowCardinality(String) CODEC(ZSTD(1)),
    model LowCardinality(String) CODEC(ZSTD(1)),
    replica LowCardinality(String) CODEC(ZSTD(1)),
    dp_rank UInt16 CODEC(ZSTD(1)),
    group_idx UInt16 CODEC(ZSTD(1)),
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
    windows UInt32 CODEC(T64, ZSTD(1)),
    version UInt64 CODEC(Delta, ZSTD(1))
)
ENGINE = {engine:ReplacingMergeTree(version)}
PARTITION BY toYYYYMM(window)
ORDER BY (toStartOfMonth(window), hash_domain, model, replica, dp_rank, group_idx, window)
TTL window + INTERVAL 2 YEAR DELETE
SETTINGS ttl_only_drop_parts = 1;

CREATE TABLE IF NOT EXISTS {database}.redundancy_1m
(
    window DateTime('UTC') CODEC(DoubleDelta, ZSTD(1)),
    hash_domain LowCardinality(String) CODEC(ZSTD(1)),
    model LowCardinality(String) CODEC(ZSTD(1)),
    medium LowCardinality(String) CODEC(ZSTD(1)),
    group_idx UInt16 CODEC(ZSTD(1)),
    owners_1 UInt64 CODEC(T64, ZSTD(1)),
    owners_2 UInt64 CODEC(T64, ZSTD(1)),
    owners_3 UInt64 CODEC(T64, ZSTD(1)),
    owners_4_7 UInt64 CODEC(T64, ZSTD(1)),
    owners_8_up UInt64 CODEC(T64, ZSTD(1)),
    unique_tokens UInt64 CODEC(T64, ZSTD(1)),
    physical_tokens UInt64 CODEC(T64, ZSTD(1)),
    sampled_one_in UInt32 CODEC(ZSTD(1)),
    trust Enum8('complete' = 1, 'partial' = 2, 'degraded' = 3),
    windows UInt32 CODEC(T64, ZSTD(1)),
    version UInt64 CODEC(Delta, ZSTD(1))
)
ENGINE = {engine:ReplacingMergeTree(version)}
PARTITION BY toYYYYMM(window)
ORDER BY (toStartOfHour(window), hash_domain, model, medium, group_idx, window)
TTL window + INTERVAL 60 DAY DELETE
SETTINGS ttl_only_drop_parts = 1;

CREATE TABLE IF NOT EXISTS {database}.redundancy_1h
(
    window DateTime('UTC') CODEC(DoubleDelta, ZSTD(1)),
    hash_domain LowCardinality(String) CODEC(ZSTD(1)),
    model LowCardinality(String) CODEC(ZSTD(1)),
    medium LowCardinality(String) CODEC(ZSTD(1)),
    group_idx UInt16 CODEC(ZSTD(1)),
    owners_1 UInt64 CODEC(T64, ZSTD(1)),
    owners_2 UInt64 CODEC(T64, ZSTD(1)),
    owners_3 UInt64 CODEC(T64, ZSTD(1)),
    owners_4_7 UInt64 CODEC(T64, ZSTD(1)),
    owners_8_up UInt64 CODEC(T64, ZSTD(1)),
    unique_tokens UInt64 CODEC(T64, ZSTD(1)),
    physical_tokens UInt64 CODEC(T64, ZSTD(1)),
    sampled_one_in UInt32 CODEC(ZSTD(1)),
    trust Enum8('complete' = 1, 'partial' = 2, 'degraded' = 3),
    windows UInt32 CODEC(T64, ZSTD(1)),
    version UInt64 CODEC(Delta, ZSTD(1))
)
ENGINE = {engine:ReplacingMergeTree(version)}
PARTITION BY toYYYYMM(window)
ORDER BY (toStartOfMonth(window), hash_domain, model, medium, group_idx, window)
TTL window + INTERVAL 2 YEAR DELETE
SETTINGS ttl_only_drop_parts = 1;

CREATE TABLE IF NOT EXISTS {database}.capacity_curve_1m
(
    window DateTime('UTC') CODEC(DoubleDelta, ZSTD(1)),
    hash_domain LowCardinality(String) CODEC(ZSTD(1)),
    model LowCardinality(String) CODEC(ZSTD(1)),
    replica LowCardinality(String) CODEC(ZSTD(1)),
    dp_rank UInt16 CODEC(ZSTD(1)),
    group_idx UInt16 CODEC(ZSTD(1)),
    needed_hist Array(UInt64) CODEC(T64, ZSTD(1)),
    sampled_one_in UInt32 CODEC(ZSTD(1)),
    trust Enum8('complete' = 1, 'partial' = 2, 'degraded' = 3),
    windows UInt32 CODEC(T64, ZSTD(1)),
    version UInt64 CODEC(Delta, ZSTD(1))
)
ENGINE = {engine:ReplacingMergeTree(version)}
PARTITION BY toYYYYMM(window)
ORDER BY (toStartOfHour(window), hash_domain, model, replica, dp_rank, group_idx, window)
TTL window + INTERVAL 60 DAY DELETE
SETTINGS ttl_only_drop_parts = 1;

CREATE TABLE IF NOT EXISTS {database}.capacity_curve_1h
(
    window DateTime('UTC') CODEC(DoubleDelta, ZSTD(1)),
    hash_domain LowCardinality(String) CODEC(ZSTD(1)),
    model LowCardinality(String) CODEC(ZSTD(1)),
    replica LowCardinality(String) CODEC(ZSTD(1)),
    dp_rank UInt16 CODEC(ZSTD(1)),
    group_idx UInt16 CODEC(ZSTD(1)),
    needed_hist Array(UInt64) CODEC(T64, ZSTD(1)),
    sampled_one_in UInt32 CODEC(ZSTD(1)),
    trust Enum8('complete' = 1, 'partial' = 2, 'degraded' = 3),
    windows UInt32 CODEC(T64, ZSTD(1)),
    version UInt64 CODEC(Delta, ZSTD(1))
)
ENGINE = {engine:ReplacingMergeTree(version)}
PARTITION BY toYYYYMM(window)
ORDER BY (toStartOfMonth(window), hash_domain, model, replica, dp_rank, group_idx, window)
TTL window + INTERVAL 2 YEAR DELETE
SETTINGS ttl_only_drop_parts = 1;

-- Of each hash domain, model and group in one row: the 100 prefixes with most duplicated and the 100 with most refilled
-- tokens of the period, as lists with an entry for each, by `prefix` and `lora`. `shared_tokens` and `duplicated_tokens`
-- are the most at the end of a window, `refilled_tokens` and `refilled_tokens_missing` sums.
CREATE TABLE IF NOT EXISTS {database}.hot_prefixes_1m
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
PARTITION BY toYYYYMM(window)
ORDER BY (toStartOfHour(window), hash_domain, model, group_idx, window)
TTL window + INTERVAL 60 DAY DELETE
SETTINGS ttl_only_drop_parts = 1;

-- The same per hour, from the minutes.
CREATE TABLE IF NOT EXISTS {database}.hot_prefixes_1h
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
PARTITION BY toYYYYMM(window)
ORDER BY (toStartOfMonth(window), hash_domain, model, group_idx, window)
TTL window + INTERVAL 2 YEAR DELETE
SETTINGS ttl_only_drop_parts = 1;
