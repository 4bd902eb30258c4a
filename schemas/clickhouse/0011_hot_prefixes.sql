-- Prefixes of which much is held several times over, or was filled again: the first ones of each shard of the hash
-- space, hash domain and group in each window (`fleet.hot_prefixes`).

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

-- Per prefix: the most that was held several times over at the end of a window, and all that was filled again.
CREATE VIEW IF NOT EXISTS {database}.hot_prefixes AS
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
        hash_domain,
        model,
        group_idx,
        lora,
        prefix,
        max(depth_blocks) AS depth,
        max(owners) AS most_owners,
        sum(shared_tokens) AS shared,
        sum(duplicated_tokens) AS duplicated,
        sum(refilled_tokens) AS refilled,
        sum(refilled_tokens_missing) AS missing,
        max(sampled_one_in) AS one_in,
        max(trust) AS worst_trust
    FROM {database}.hot_prefixes_10s FINAL
    WHERE window >= {from:DateTime('UTC')}
        AND window <= {to:DateTime('UTC')}
        AND toStartOfHour(window) >= toStartOfHour({from:DateTime('UTC')})
        AND toStartOfHour(window) <= {to:DateTime('UTC')}
    GROUP BY hash_domain, model, group_idx, lora, prefix, window
)
GROUP BY hash_domain, model, group_idx, lora, prefix;
