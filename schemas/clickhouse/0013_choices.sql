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

-- How good routers' choices were, per window and replica chosen: how many were judged and how many of these were not the
-- best match, tokens of both matches and those lost between them, and how many were judged by an index that was stale.
CREATE VIEW IF NOT EXISTS {database}.routing_10s AS
SELECT
    toDateTime(intDiv(toUnixTimestamp(one.time), 10) * 10, 'UTC') AS window,
    one.model AS model,
    one.tenant AS tenant,
    one.replica AS replica,
    count() AS choices,
    countIf(one.not_judged = '') AS judged_choices,
    countIf(one.chosen_tokens < one.best_tokens) AS worse_choices,
    sum(one.best_tokens) AS best_tokens,
    sum(one.chosen_tokens) AS chosen_tokens,
    best_tokens - chosen_tokens AS lost_tokens,
    countIf(one.stale) AS stale_choices,
    sumIf(one.best_tokens - one.chosen_tokens, one.stale) AS stale_lost_tokens,
    countIf(one.not_judged = 'unknown_replica') AS unknown_replica_choices,
    countIf(one.not_judged = 'share') AS share_choices,
    countIf(one.upper_bound) AS upper_bound_choices,
    max(one.trust) AS trust
FROM {database}.choices AS one FINAL
WHERE one.time >= {from:DateTime('UTC')}
    AND one.time < {to:DateTime('UTC')} + INTERVAL 10 SECOND
    AND toStartOfHour(one.time) >= toStartOfHour({from:DateTime('UTC')})
    AND toStartOfHour(one.time) <= {to:DateTime('UTC')} + INTERVAL 10 SECOND
    AND intDiv(toUnixTimestamp(one.time), 10) * 10 >= toUnixTimestamp({from:DateTime('UTC')})
    AND intDiv(toUnixTimestamp(one.time), 10) * 10 <= toUnixTimestamp({to:DateTime('UTC')})
GROUP BY window, model, tenant, replica;

-- The same for a chart: `time` and `width` are those of the other series of the range. Never less than ten seconds:
-- before it runs, ClickHouse tries the division with a value of 0.
CREATE VIEW IF NOT EXISTS {database}.routing_series AS
SELECT
    window,
    width,
    toDateTime(intDiv(toUnixTimestamp(window), width) * width, 'UTC') AS time,
    model, tenant, replica, choices, judged_choices, worse_choices, best_tokens, chosen_tokens, lost_tokens,
    stale_choices, stale_lost_tokens, unknown_replica_choices, share_choices, upper_bound_choices, trust
FROM {database}.routing_10s(from = {from:DateTime('UTC')}, to = {to:DateTime('UTC')})
WHERE (greatest(10, assumeNotNull((
    SELECT toUInt32(intDiv({step:UInt32} + seconds - 1, seconds) * seconds)
    FROM {database}.finest(from = {from:DateTime('UTC')}, to = {to:DateTime('UTC')})
))) AS width) > 0;
