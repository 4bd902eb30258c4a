-- hot_prefixes_10s per minute and per hour, with the shards added up first: the most that a prefix had at a time in all
-- shards does not follow from the most in each. A row lists all prefixes of its period, so that the list is replaced as
-- a whole: which prefixes are among the first ones changes while a period fills.

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

-- hot_prefixes from the table that fits the range. Minutes and hours list 100 by each figure, so what was refilled a
-- little at a time may be missing there; what was duplicated most is not.
CREATE VIEW IF NOT EXISTS {database}.hot_prefixes_series AS
SELECT
    hash_domain,
    model,
    group_idx,
    lora,
    leftPad(lower(hex(prefix)), 16, '0') AS first_block,
    max(depth) AS depth_blocks,
    max(most_owners) AS owners,
    max(shared) AS shared_tokens,
    max(duplicated) AS duplicated_tokens,
    sum(refilled) AS refilled_tokens,
    sum(missing) AS refilled_tokens_missing,
    max(one_in) AS sampled_one_in,
    max(worst_trust) AS trust
FROM
(
    SELECT
        hash_domain, model, group_idx, lora, prefix,
        max(depth_blocks) AS depth, max(owners) AS most_owners, sum(shared_tokens) AS shared,
        sum(duplicated_tokens) AS duplicated, sum(refilled_tokens) AS refilled,
        sum(refilled_tokens_missing) AS missing, max(sampled_one_in) AS one_in, max(trust) AS worst_trust
    FROM {database}.hot_prefixes_10s FINAL
    WHERE (SELECT seconds FROM {database}.finest(from = {from:DateTime('UTC')}, to = {to:DateTime('UTC')})) = 10
        AND window >= {from:DateTime('UTC')}
        AND window <= {to:DateTime('UTC')}
        AND toStartOfHour(window) >= toStartOfHour({from:DateTime('UTC')})
        AND toStartOfHour(window) <= {to:DateTime('UTC')}
    GROUP BY hash_domain, model, group_idx, lora, prefix, window
    UNION ALL
    SELECT
        hash_domain, model, group_idx, lora, prefix,
        depth_blocks, owners, shared_tokens, duplicated_tokens, refilled_tokens,
        refilled_tokens_missing, sampled_one_in, trust
    FROM {database}.hot_prefixes_1m FINAL
    ARRAY JOIN
        lora, prefix, depth_blocks, owners, shared_tokens, duplicated_tokens, refilled_tokens,
        refilled_tokens_missing, sampled_one_in, trust
    WHERE (SELECT seconds FROM {database}.finest(from = {from:DateTime('UTC')}, to = {to:DateTime('UTC')})) = 60
        AND window >= toStartOfMinute({from:DateTime('UTC')})
        AND window <= {to:DateTime('UTC')}
        AND toStartOfHour(window) >= toStartOfHour({from:DateTime('UTC')})
        AND toStartOfHour(window) <= {to:DateTime('UTC')}
    UNION ALL
    SELECT
        hash_domain, model, group_idx, lora, prefix,
        depth_blocks, owners, shared_tokens, duplicated_tokens, refilled_tokens,
        refilled_tokens_missing, sampled_one_in, trust
    FROM {database}.hot_prefixes_1h FINAL
    ARRAY JOIN
        lora, prefix, depth_blocks, owners, shared_tokens, duplicated_tokens, refilled_tokens,
        refilled_tokens_missing, sampled_one_in, trust
    WHERE (SELECT seconds FROM {database}.finest(from = {from:DateTime('UTC')}, to = {to:DateTime('UTC')})) = 3600
        AND window >= toStartOfHour({from:DateTime('UTC')})
        AND window <= {to:DateTime('UTC')}
        AND toStartOfMonth(window) >= toStartOfMonth({from:DateTime('UTC')})
        AND toStartOfMonth(window) <= {to:DateTime('UTC')}
)
GROUP BY hash_domain, model, group_idx, lora, prefix;
