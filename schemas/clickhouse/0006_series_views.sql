-- Reading history for a picture: the finest table that is small enough, so that a panel costs about the same whether
-- it shows an hour or a year, ten replicas or thousands. `time` is the start of the point a window belongs to and
-- `width` its length in seconds: `step`, rounded up to whole windows. The arms that were not chosen have a condition
-- that is constant and false: nothing of them is read.

-- Length of the windows to read for a range: at most 100,000 windows of sources from the ten-second tables (which
-- hold up to eight rows for each, one a shard), 400,000 from the minute tables, and never more than two hours and a day.
-- Tables are sorted by hour first, and an hour is read whole: a shorter range than half of one costs no less.
CREATE VIEW IF NOT EXISTS {database}.finest AS
SELECT
    dateDiff('second', {from:DateTime('UTC')}, {to:DateTime('UTC')}) AS length,
    uniq(replica, dp_rank) AS sources,
    multiIf(
        length <= 7200 AND sources * greatest(length, 1800) <= 10 * 100000, 10,
        length <= 86400 AND sources * length <= 60 * 400000, 60,
        3600
    ) AS seconds
FROM {database}.sources
WHERE opened_at <= {to:DateTime('UTC')}
    AND (closed_at IS NULL OR closed_at >= {from:DateTime('UTC')});

CREATE VIEW IF NOT EXISTS {database}.occupancy_series AS
SELECT
    window,
    intDiv({step:UInt32} + 9, 10) * 10 AS width,
    toDateTime(intDiv(toUnixTimestamp(window), width) * width, 'UTC') AS time,
    model, replica, dp_rank, medium, group_idx, block_size, entries, blocks, tokens,
    covered_blocks, capacity_blocks, store_only, trust
FROM {database}.occupancy_10s FINAL
WHERE (SELECT seconds FROM {database}.finest(from = {from:DateTime('UTC')}, to = {to:DateTime('UTC')})) = 10
    AND window >= {from:DateTime('UTC')}
    AND window <= {to:DateTime('UTC')}
    AND toStartOfHour(window) >= toStartOfHour({from:DateTime('UTC')})
    AND toStartOfHour(window) <= {to:DateTime('UTC')}
UNION ALL
SELECT
    window,
    intDiv({step:UInt32} + 59, 60) * 60 AS width,
    toDateTime(intDiv(toUnixTimestamp(window), width) * width, 'UTC') AS time,
    model, replica, dp_rank, medium, group_idx, block_size, entries, blocks, tokens,
    covered_blocks, capacity_blocks, store_only, trust
FROM {database}.occupancy_1m FINAL
WHERE (SELECT seconds FROM {database}.finest(from = {from:DateTime('UTC')}, to = {to:DateTime('UTC')})) = 60
    AND window >= toStartOfMinute({from:DateTime('UTC')})
    AND window <= {to:DateTime('UTC')}
    AND toStartOfHour(window) >= toStartOfHour({from:DateTime('UTC')})
    AND toStartOfHour(window) <= {to:DateTime('UTC')}
UNION ALL
SELECT
    window,
    intDiv({step:UInt32} + 3599, 3600) * 3600 AS width,
    toDateTime(intDiv(toUnixTimestamp(window), width) * width, 'UTC') AS time,
    model, replica, dp_rank, medium, group_idx, block_size, entries, blocks, tokens,
    covered_blocks, capacity_blocks, store_only, trust
FROM {database}.occupancy_1h FINAL
WHERE (SELECT seconds FROM {database}.finest(from = {from:DateTime('UTC')}, to = {to:DateTime('UTC')})) = 3600
    AND window >= toStartOfHour({from:DateTime('UTC')})
    AND window <= {to:DateTime('UTC')}
    AND toStartOfMonth(window) >= toStartOfMonth({from:DateTime('UTC')})
    AND toStartOfMonth(window) <= {to:DateTime('UTC')};

CREATE VIEW IF NOT EXISTS {database}.flow_series AS
SELECT
    window,
    intDiv({step:UInt32} + 9, 10) * 10 AS width,
    toDateTime(intDiv(toUnixTimestamp(window), width) * width, 'UTC') AS time,
    model, replica, dp_rank, medium, group_idx, stored_blocks, stored_tokens,
    filled_blocks, removed_blocks, evicted_blocks, evicted_tokens, cleared_blocks, expired_blocks, reannounced_blocks,
    unknown_removed_blocks, lifetime_hist, trust
FROM {database}.flow_10s FINAL
WHERE (SELECT seconds FROM {database}.finest(from = {from:DateTime('UTC')}, to = {to:DateTime('UTC')})) = 10
    AND window >= {from:DateTime('UTC')}
    AND window <= {to:DateTime('UTC')}
    AND toStartOfHour(window) >= toStartOfHour({from:DateTime('UTC')})
    AND toStartOfHour(window) <= {to:DateTime('UTC')}
UNION ALL
SELECT
    window,
    intDiv({step:UInt32} + 59, 60) * 60 AS width,
    toDateTime(intDiv(toUnixTimestamp(window), width) * width, 'UTC') AS time,
    model, replica, dp_rank, medium, group_idx, stored_blocks, stored_tokens,
    filled_blocks, removed_blocks, evicted_blocks, evicted_tokens, cleared_blocks, expired_blocks, reannounced_blocks,
    unknown_removed_blocks, lifetime_hist, trust
FROM {database}.flow_1m FINAL
WHERE (SELECT seconds FROM {database}.finest(from = {from:DateTime('UTC')}, to = {to:DateTime('UTC')})) = 60
    AND window >= toStartOfMinute({from:DateTime('UTC')})
    AND window <= {to:DateTime('UTC')}
    AND toStartOfHour(window) >= toStartOfHour({from:DateTime('UTC')})
    AND toStartOfHour(window) <= {to:DateTime('UTC')}
UNION ALL
SELECT
    window,
    intDiv({step:UInt32} + 3599, 3600) * 3600 AS width,
    toDateTime(intDiv(toUnixTimestamp(window), width) * width, 'UTC') AS time,
    model, replica, dp_rank, medium, group_idx, stored_blocks, stored_tokens,
    filled_blocks, removed_blocks, evicted_blocks, evicted_tokens, cleared_blocks, expired_blocks, reannounced_blocks,
    unknown_removed_blocks, lifetime_hist, trust
FROM {database}.flow_1h FINAL
WHERE (SELECT seconds FROM {database}.finest(from = {from:DateTime('UTC')}, to = {to:DateTime('UTC')})) = 3600
    AND window >= toStartOfHour({from:DateTime('UTC')})
    AND window <= {to:DateTime('UTC')}
    AND toStartOfMonth(window) >= toStartOfMonth({from:DateTime('UTC')})
    AND toStartOfMonth(window) <= {to:DateTime('UTC')};

CREATE VIEW IF NOT EXISTS {database}.stream_health_series AS
SELECT
    window,
    intDiv({step:UInt32} + 9, 10) * 10 AS width,
    toDateTime(intDiv(toUnixTimestamp(window), width) * width, 'UTC') AS time,
    model, replica, dp_rank, batches, events, duplicate_batches, gap_batches,
    replayed_batches, lost_batches, undecodable_events, restarts, incarnation, last_seq, lag_seconds, connected,
    drift_blocks, trust, trust_since
FROM {database}.stream_health_10s FINAL
WHERE (SELECT seconds FROM {database}.finest(from = {from:DateTime('UTC')}, to = {to:DateTime('UTC')})) = 10
    AND window >= {from:DateTime('UTC')}
    AND window <= {to:DateTime('UTC')}
    AND toStartOfHour(window) >= toStartOfHour({from:DateTime('UTC')})
    AND toStartOfHour(window) <= {to:DateTime('UTC')}
UNION ALL
SELECT
    window,
    intDiv({step:UInt32} + 59, 60) * 60 AS width,
    toDateTime(intDiv(toUnixTimestamp(window), width) * width, 'UTC') AS time,
    model, replica, dp_rank, batches, events, duplicate_batches, gap_batches,
    replayed_batches, lost_batches, undecodable_events, restarts, incarnation, last_seq, lag_seconds, connected,
    drift_blocks, trust, trust_since
FROM {database}.stream_health_1m FINAL
WHERE (SELECT seconds FROM {database}.finest(from = {from:DateTime('UTC')}, to = {to:DateTime('UTC')})) = 60
    AND window >= toStartOfMinute({from:DateTime('UTC')})
    AND window <= {to:DateTime('UTC')}
    AND toStartOfHour(window) >= toStartOfHour({from:DateTime('UTC')})
    AND toStartOfHour(window) <= {to:DateTime('UTC')}
UNION ALL
SELECT
    window,
    intDiv({step:UInt32} + 3599, 3600) * 3600 AS width,
    toDateTime(intDiv(toUnixTimestamp(window), width) * width, 'UTC') AS time,
    model, replica, dp_rank, batches, events, duplicate_batches, gap_batches,
    replayed_batches, lost_batches, undecodable_events, restarts, incarnation, last_seq, lag_seconds, connected,
    drift_blocks, trust, trust_since
FROM {database}.stream_health_1h FINAL
WHERE (SELECT seconds FROM {database}.finest(from = {from:DateTime('UTC')}, to = {to:DateTime('UTC')})) = 3600
    AND window >= toStartOfHour({from:DateTime('UTC')})
    AND window <= {to:DateTime('UTC')}
    AND toStartOfMonth(window) >= toStartOfMonth({from:DateTime('UTC')})
    AND toStartOfMonth(window) <= {to:DateTime('UTC')};

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
            model, replica, dp_rank, newest.time AS time,
            toDateTime64(toStartOfMinute({from:DateTime('UTC')}), 3, 'UTC') AS since,
            newest.queries AS queries, newest.hits AS hits, oldest.queries AS first_queries, oldest.hits AS first_hits
        FROM
        (
            -- FINAL does not aggregate an element of a tuple that is read by itself: of scrapes that were not merged yet,
            -- it was that of any one. `materialize` has the whole tuple read; grouping takes twice as long.
            SELECT model, replica, dp_rank, materialize(first) AS oldest, materialize(last) AS newest
            FROM {database}.engine_counters_by_minute FINAL
            WHERE (SELECT seconds FROM {database}.finest(from = {from:DateTime('UTC')}, to = {to:DateTime('UTC')}))
                = 60
                AND window >= toStartOfMinute({from:DateTime('UTC')}) - INTERVAL 1 MINUTE
                AND window <= {to:DateTime('UTC')}
                AND toStartOfHour(window) >= toStartOfHour({from:DateTime('UTC')} - INTERVAL 1 MINUTE)
                AND toStartOfHour(window) <= {to:DateTime('UTC')}
        )
        UNION ALL
        SELECT
            model, replica, dp_rank, newest.time AS time,
            toDateTime64(toStartOfHour({from:DateTime('UTC')}), 3, 'UTC') AS since,
            newest.queries AS queries, newest.hits AS hits, oldest.queries AS first_queries, oldest.hits AS first_hits
        FROM
        (
            SELECT model, replica, dp_rank, materialize(first) AS oldest, materialize(last) AS newest
            FROM {database}.engine_counters_by_hour FINAL
            WHERE (SELECT seconds FROM {database}.finest(from = {from:DateTime('UTC')}, to = {to:DateTime('UTC')}))
                = 3600
                AND window >= toStartOfHour({from:DateTime('UTC')}) - INTERVAL 1 HOUR
                AND window <= {to:DateTime('UTC')}
                AND toStartOfMonth(window) >= toStartOfMonth({from:DateTime('UTC')} - INTERVAL 1 HOUR)
                AND toStartOfMonth(window) <= {to:DateTime('UTC')}
        )
    )
    WINDOW scrapes AS (PARTITION BY model, replica, dp_rank ORDER BY time ROWS BETWEEN 1 PRECEDING AND CURRENT ROW)
)
WHERE time >= since;

CREATE VIEW IF NOT EXISTS {database}.fills_series AS
SELECT
    window,
    intDiv({step:UInt32} + 9, 10) * 10 AS width,
    toDateTime(intDiv(toUnixTimestamp(window), width) * width, 'UTC') AS time,
    hash_domain, model, replica, dp_rank, group_idx, filled_tokens, promoted_tokens, peer_tokens,
    peer_and_evicted_tokens, evicted_tokens, evicted_elsewhere_tokens, cleared_tokens, cold_tokens, unknown_tokens,
    regret_hist, sampled_one_in, trust
FROM {database}.fills_10s FINAL
WHERE (SELECT seconds FROM {database}.finest(from = {from:DateTime('UTC')}, to = {to:DateTime('UTC')})) = 10
    AND window >= {from:DateTime('UTC')}
    AND window <= {to:DateTime('UTC')}
    AND toStartOfHour(window) >= toStartOfHour({from:DateTime('UTC')})
    AND toStartOfHour(window) <= {to:DateTime('UTC')}
UNION ALL
SELECT
    window,
    intDiv({step:UInt32} + 59, 60) * 60 AS width,
    toDateTime(intDiv(toUnixTimestamp(window), width) * width, 'UTC') AS time,
    hash_domain, model, replica, dp_rank, group_idx, filled_tokens, promoted_tokens, peer_tokens,
    peer_and_evicted_tokens, evicted_tokens, evicted_elsewhere_tokens, cleared_tokens, cold_tokens, unknown_tokens,
    regret_hist, sampled_one_in, trust
FROM {database}.fills_1m FINAL
WHERE (SELECT seconds FROM {database}.finest(from = {from:DateTime('UTC')}, to = {to:DateTime('UTC')})) = 60
    AND window >= toStartOfMinute({from:DateTime('UTC')})
    AND window <= {to:DateTime('UTC')}
    AND toStartOfHour(window) >= toStartOfHour({from:DateTime('UTC')})
    AND toStartOfHour(window) <= {to:DateTime('UTC')}
UNION ALL
SELECT
    window,
    intDiv({step:UInt32} + 3599, 3600) * 3600 AS width,
    toDateTime(intDiv(toUnixTimestamp(window), width) * width, 'UTC') AS time,
    hash_domain, model, replica, dp_rank, group_idx, filled_tokens, promoted_tokens, peer_tokens,
    peer_and_evicted_tokens, evicted_tokens, evicted_elsewhere_tokens, cleared_tokens, cold_tokens, unknown_tokens,
    regret_hist, sampled_one_in, trust
FROM {database}.fills_1h FINAL
WHERE (SELECT seconds FROM {database}.finest(from = {from:DateTime('UTC')}, to = {to:DateTime('UTC')})) = 3600
    AND window >= toStartOfHour({from:DateTime('UTC')})
    AND window <= {to:DateTime('UTC')}
    AND toStartOfMonth(window) >= toStartOfMonth({from:DateTime('UTC')})
    AND toStartOfMonth(window) <= {to:DateTime('UTC')};

CREATE VIEW IF NOT EXISTS {database}.redundancy_series AS
SELECT
    window,
    intDiv({step:UInt32} + 9, 10) * 10 AS width,
    toDateTime(intDiv(toUnixTimestamp(window), width) * width, 'UTC') AS time,
    hash_domain, model, medium, group_idx, owners_1, owners_2, owners_3, owners_4_7, owners_8_up,
    unique_tokens, physical_tokens, sampled_one_in, trust
FROM {database}.redundancy_10s FINAL
WHERE (SELECT seconds FROM {database}.finest(from = {from:DateTime('UTC')}, to = {to:DateTime('UTC')})) = 10
    AND window >= {from:DateTime('UTC')}
    AND window <= {to:DateTime('UTC')}
    AND toStartOfHour(window) >= toStartOfHour({from:DateTime('UTC')})
    AND toStartOfHour(window) <= {to:DateTime('UTC')}
UNION ALL
SELECT
    window,
    intDiv({step:UInt32} + 59, 60) * 60 AS width,
    toDateTime(intDiv(toUnixTimestamp(window), width) * width, 'UTC') AS time,
    hash_domain, model, medium, group_idx, owners_1, owners_2, owners_3, owners_4_7, owners_8_up,
    unique_tokens, physical_tokens, sampled_one_in, trust
FROM {database}.redundancy_1m FINAL
WHERE (SELECT seconds FROM {database}.finest(from = {from:DateTime('UTC')}, to = {to:DateTime('UTC')})) = 60
    AND window >= toStartOfMinute({from:DateTime('UTC')})
    AND window <= {to:DateTime('UTC')}
    AND toStartOfHour(window) >= toStartOfHour({from:DateTime('UTC')})
    AND toStartOfHour(window) <= {to:DateTime('UTC')}
UNION ALL
SELECT
    window,
    intDiv({step:UInt32} + 3599, 3600) * 3600 AS width,
    toDateTime(intDiv(toUnixTimestamp(window), width) * width, 'UTC') AS time,
    hash_domain, model, medium, group_idx, owners_1, owners_2, owners_3, owners_4_7, owners_8_up,
    unique_tokens, physical_tokens, sampled_one_in, trust
FROM {database}.redundancy_1h FINAL
WHERE (SELECT seconds FROM {database}.finest(from = {from:DateTime('UTC')}, to = {to:DateTime('UTC')})) = 3600
    AND window >= toStartOfHour({from:DateTime('UTC')})
    AND window <= {to:DateTime('UTC')}
    AND toStartOfMonth(window) >= toStartOfMonth({from:DateTime('UTC')})
    AND toStartOfMonth(window) <= {to:DateTime('UTC')};

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
