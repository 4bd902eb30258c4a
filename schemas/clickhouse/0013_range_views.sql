-- The questions of 0006_fleet_views.sql for a picture: of the finest table that is small enough for the range.

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

-- Growth of the engines' counters from one scrape to the next one read, of the first one from the start of its
-- period; a counter that fell began anew at 0.
CREATE VIEW IF NOT EXISTS {database}.engine_hits_series AS
SELECT
    model,
    replica,
    time,
    queries - if(queries < queries_before, 0, queries_before) AS queried,
    hits - if(queries < queries_before, 0, hits_before) AS hit
FROM
(
    SELECT
        model,
        replica,
        time,
        since,
        queries,
        hits,
        coalesce(lagInFrame(toNullable(queries)) OVER scrapes, first_queries) AS queries_before,
        coalesce(lagInFrame(toNullable(hits)) OVER scrapes, first_hits) AS hits_before
    FROM
    (
        SELECT
            model, replica, dp_rank, time, toDateTime64({from:DateTime('UTC')}, 3, 'UTC') AS since,
            toInt64(assumeNotNull(prefix_cache_queries)) AS queries, toInt64(assumeNotNull(prefix_cache_hits)) AS hits,
            queries AS first_queries, hits AS first_hits
        FROM {database}.engine_counters FINAL
        WHERE (SELECT seconds FROM {database}.finest(from = {from:DateTime('UTC')}, to = {to:DateTime('UTC')})) = 10
            AND time >= {from:DateTime('UTC')} - INTERVAL 1 MINUTE
            AND time < {to:DateTime('UTC')} + INTERVAL 10 SECOND
            AND toStartOfHour(time) >= toStartOfHour({from:DateTime('UTC')} - INTERVAL 1 MINUTE)
            AND toStartOfHour(time) <= {to:DateTime('UTC')} + INTERVAL 10 SECOND
            AND prefix_cache_queries IS NOT NULL
            AND prefix_cache_hits IS NOT NULL
        UNION ALL
        SELECT
            model, replica, dp_rank, last.time AS time,
            toDateTime64(toStartOfMinute({from:DateTime('UTC')}), 3, 'UTC') AS since,
            last.queries AS queries, last.hits AS hits, first.queries AS first_queries, first.hits AS first_hits
        FROM {database}.engine_counters_by_minute FINAL
        WHERE (SELECT seconds FROM {database}.finest(from = {from:DateTime('UTC')}, to = {to:DateTime('UTC')})) = 60
            AND window >= toStartOfMinute({from:DateTime('UTC')}) - INTERVAL 1 MINUTE
            AND window <= {to:DateTime('UTC')}
            AND toStartOfHour(window) >= toStartOfHour({from:DateTime('UTC')} - INTERVAL 1 MINUTE)
            AND toStartOfHour(window) <= {to:DateTime('UTC')}
        UNION ALL
        SELECT
            model, replica, dp_rank, last.time AS time,
            toDateTime64(toStartOfHour({from:DateTime('UTC')}), 3, 'UTC') AS since,
            last.queries AS queries, last.hits AS hits, first.queries AS first_queries, first.hits AS first_hits
        FROM {database}.engine_counters_by_hour FINAL
        WHERE (SELECT seconds FROM {database}.finest(from = {from:DateTime('UTC')}, to = {to:DateTime('UTC')})) = 3600
            AND window >= toStartOfHour({from:DateTime('UTC')}) - INTERVAL 1 HOUR
            AND window <= {to:DateTime('UTC')}
            AND toStartOfMonth(window) >= toStartOfMonth({from:DateTime('UTC')} - INTERVAL 1 HOUR)
            AND toStartOfMonth(window) <= {to:DateTime('UTC')}
    )
    WINDOW scrapes AS (PARTITION BY model, replica, dp_rank ORDER BY time ROWS BETWEEN 1 PRECEDING AND CURRENT ROW)
)
WHERE time >= since;

CREATE VIEW IF NOT EXISTS {database}.capacity_curve_series AS
SELECT window, hash_domain, model, replica, dp_rank, group_idx, needed_hist, sampled_one_in, trust
FROM {database}.capacity_curve_10s FINAL
WHERE (SELECT seconds FROM {database}.finest(from = {from:DateTime('UTC')}, to = {to:DateTime('UTC')})) = 10
    AND window >= {from:DateTime('UTC')}
    AND window <= {to:DateTime('UTC')}
    AND toStartOfHour(window) >= toStartOfHour({from:DateTime('UTC')})
    AND toStartOfHour(window) <= {to:DateTime('UTC')}
UNION ALL
SELECT window, hash_domain, model, replica, dp_rank, group_idx, needed_hist, sampled_one_in, trust
FROM {database}.capacity_curve_1m FINAL
WHERE (SELECT seconds FROM {database}.finest(from = {from:DateTime('UTC')}, to = {to:DateTime('UTC')})) = 60
    AND window >= toStartOfMinute({from:DateTime('UTC')})
    AND window <= {to:DateTime('UTC')}
    AND toStartOfHour(window) >= toStartOfHour({from:DateTime('UTC')})
    AND toStartOfHour(window) <= {to:DateTime('UTC')}
UNION ALL
SELECT window, hash_domain, model, replica, dp_rank, group_idx, needed_hist, sampled_one_in, trust
FROM {database}.capacity_curve_1h FINAL
WHERE (SELECT seconds FROM {database}.finest(from = {from:DateTime('UTC')}, to = {to:DateTime('UTC')})) = 3600
    AND window >= toStartOfHour({from:DateTime('UTC')})
    AND window <= {to:DateTime('UTC')}
    AND toStartOfMonth(window) >= toStartOfMonth({from:DateTime('UTC')})
    AND toStartOfMonth(window) <= {to:DateTime('UTC')};

-- hit_potential from the table that fits the range; what an engine counted between its last scrape that is read and a
-- restart is missing.
CREATE VIEW IF NOT EXISTS {database}.hit_potential_series AS
SELECT
    fills.model AS model,
    fills.replica AS replica,
    fills.hash_domain AS hash_domain,
    filled_tokens,
    promoted_tokens,
    peer_tokens,
    peer_and_evicted_tokens,
    evicted_tokens,
    evicted_elsewhere_tokens,
    cleared_tokens,
    cold_tokens,
    unknown_tokens,
    peer_tokens + peer_and_evicted_tokens + evicted_tokens + evicted_elsewhere_tokens + cleared_tokens
        AS avoidable_tokens,
    (peer_tokens + peer_and_evicted_tokens) / nullIf(filled_tokens, 0) AS routing_share,
    (evicted_tokens + evicted_elsewhere_tokens + peer_and_evicted_tokens) / nullIf(filled_tokens, 0) AS capacity_share,
    peer_and_evicted_tokens / nullIf(filled_tokens, 0) AS routing_and_capacity_share,
    cleared_tokens / nullIf(filled_tokens, 0) AS warm_up_share,
    promoted_tokens / nullIf(filled_tokens, 0) AS promoted_share,
    cold_tokens / nullIf(filled_tokens, 0) AS cold_share,
    unknown_tokens / nullIf(filled_tokens, 0) AS unknown_share,
    engine.queried AS queried_tokens,
    engine.hit AS hit_tokens,
    hit_tokens / nullIf(queried_tokens, 0) AS actual_hit_rate,
    least(queried_tokens, hit_tokens + evicted_tokens + peer_and_evicted_tokens + cleared_tokens)
        / nullIf(queried_tokens, 0) AS own_ideal_hit_rate,
    least(queried_tokens, hit_tokens + avoidable_tokens) / nullIf(queried_tokens, 0) AS ideal_hit_rate,
    fills.sampled_one_in AS sampled_one_in,
    fills.trust AS trust
FROM
(
    SELECT
        hash_domain,
        model,
        replica,
        group_idx,
        sum(filled_tokens) AS filled_tokens,
        sum(promoted_tokens) AS promoted_tokens,
        sum(peer_tokens) AS peer_tokens,
        sum(peer_and_evicted_tokens) AS peer_and_evicted_tokens,
        sum(evicted_tokens) AS evicted_tokens,
        sum(evicted_elsewhere_tokens) AS evicted_elsewhere_tokens,
        sum(cleared_tokens) AS cleared_tokens,
        sum(cold_tokens) AS cold_tokens,
        sum(unknown_tokens) AS unknown_tokens,
        max(sampled_one_in) AS sampled_one_in,
        max(trust) AS trust
    FROM {database}.fills_series(from = {from:DateTime('UTC')}, to = {to:DateTime('UTC')}, step = 10)
    GROUP BY hash_domain, model, replica, group_idx
    ORDER BY filled_tokens DESC
    LIMIT 1 BY hash_domain, model, replica
) AS fills
LEFT JOIN
(
    SELECT model, replica, sum(queried) AS queried, sum(hit) AS hit
    FROM {database}.engine_hits_series(from = {from:DateTime('UTC')}, to = {to:DateTime('UTC')})
    GROUP BY model, replica
) AS engine ON engine.model = fills.model AND engine.replica = fills.replica
SETTINGS join_use_nulls = 1;


-- capacity_gain from the table that fits the range.
CREATE VIEW IF NOT EXISTS {database}.capacity_gain_series AS
SELECT
    hash_domain,
    model,
    replica,
    toUInt64(exp2(exponent - 1)) AS extra_tokens,
    extra_tokens * kv_bytes_per_token AS extra_bytes,
    saved AS saved_tokens,
    filled_tokens,
    saved_tokens / nullIf(filled_tokens, 0) AS saved_share,
    sampled_one_in,
    trust
FROM
(
    SELECT
        fills.hash_domain AS hash_domain,
        fills.model AS model,
        fills.replica AS replica,
        fills.filled_tokens AS filled_tokens,
        fills.sampled_one_in AS sampled_one_in,
        fills.trust AS trust,
        arrayCumSum(curve.needed) AS cumulated
    FROM
    (
        SELECT
            hash_domain,
            model,
            replica,
            group_idx,
            sum(filled_tokens) AS filled_tokens,
            max(sampled_one_in) AS sampled_one_in,
            max(trust) AS trust
        FROM {database}.fills_series(from = {from:DateTime('UTC')}, to = {to:DateTime('UTC')}, step = 10)
        GROUP BY hash_domain, model, replica, group_idx
        ORDER BY filled_tokens DESC
        LIMIT 1 BY hash_domain, model, replica
    ) AS fills
    INNER JOIN
    (
        SELECT
            hash_domain,
            replica,
            group_idx,
            sumForEach(needed_hist) AS needed
        FROM {database}.capacity_curve_series(from = {from:DateTime('UTC')}, to = {to:DateTime('UTC')})
        GROUP BY hash_domain, replica, group_idx
    ) AS curve
        ON curve.hash_domain = fills.hash_domain AND curve.replica = fills.replica
        AND curve.group_idx = fills.group_idx
) AS cumulated
ARRAY JOIN cumulated AS saved, arrayEnumerate(cumulated) AS exponent
LEFT JOIN
(
    SELECT model AS name, kv_bytes_per_token
    FROM {database}.models FINAL
) AS models ON models.name = cumulated.model;
