-- Which table serves a range is looked up once, not by each table of a statement: planning `briefing` had 33 such
-- look-ups. The views `*_windows` are told which: `seconds` is the length of its windows (`finest`).

-- Length of the windows to read for a range: at most 100,000 windows of sources from the ten-second tables (which
-- hold up to eight rows for each, one a shard), 400,000 from the minute tables, and never more than two hours and a day.
-- Tables are sorted by hour first, and an hour is read whole: a shorter range than half of one costs no less. A range
-- that begins before what a table keeps is read from the next one; a TTL that was changed is not known here.
CREATE OR REPLACE VIEW {database}.finest AS
SELECT
    dateDiff('second', {from:DateTime('UTC')}, {to:DateTime('UTC')}) AS length,
    uniq(replica, dp_rank) AS sources,
    multiIf(
        length <= 7200 AND sources * greatest(length, 1800) <= 10 * 100000
            AND {from:DateTime('UTC')} >= now() - INTERVAL 7 DAY, 10,
        length <= 86400 AND sources * length <= 60 * 400000
            AND {from:DateTime('UTC')} >= now() - INTERVAL 60 DAY, 60,
        3600
    ) AS seconds
FROM {database}.sources
WHERE opened_at <= {to:DateTime('UTC')}
    AND (closed_at IS NULL OR closed_at >= {from:DateTime('UTC')});

-- engine_hits_series of windows of `seconds`.
CREATE VIEW IF NOT EXISTS {database}.engine_hits_windows AS
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
        WHERE {seconds:UInt32} = 10
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
            WHERE {seconds:UInt32}
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
            WHERE {seconds:UInt32}
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

-- Growth of the engines' counters from one scrape to the next one read, of the first one from the start of its
-- period; a counter that fell began again at 0.
CREATE OR REPLACE VIEW {database}.engine_hits_series AS
SELECT *
FROM {database}.engine_hits_windows(
    from = {from:DateTime('UTC')}, to = {to:DateTime('UTC')},
    seconds = (SELECT seconds FROM {database}.finest(from = {from:DateTime('UTC')}, to = {to:DateTime('UTC')}))
);

-- stream_health_series of windows of `seconds`.
CREATE VIEW IF NOT EXISTS {database}.stream_health_windows AS
SELECT
    window,
    intDiv({step:UInt32} + 9, 10) * 10 AS width,
    toDateTime(intDiv(toUnixTimestamp(window), width) * width, 'UTC') AS time,
    model, replica, dp_rank, batches, events, duplicate_batches, gap_batches,
    replayed_batches, lost_batches, undecodable_events, restarts, incarnation, last_seq, lag_seconds, connected,
    drift_blocks, trust, trust_since
FROM {database}.stream_health_10s FINAL
WHERE {seconds:UInt32} = 10
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
WHERE {seconds:UInt32} = 60
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
WHERE {seconds:UInt32} = 3600
    AND window >= toStartOfHour({from:DateTime('UTC')})
    AND window <= {to:DateTime('UTC')}
    AND toStartOfMonth(window) >= toStartOfMonth({from:DateTime('UTC')})
    AND toStartOfMonth(window) <= {to:DateTime('UTC')};

CREATE OR REPLACE VIEW {database}.stream_health_series AS
SELECT *
FROM {database}.stream_health_windows(
    from = {from:DateTime('UTC')}, to = {to:DateTime('UTC')}, step = {step:UInt32},
    seconds = (SELECT seconds FROM {database}.finest(from = {from:DateTime('UTC')}, to = {to:DateTime('UTC')}))
);

-- fills_series of windows of `seconds`.
CREATE VIEW IF NOT EXISTS {database}.fills_windows AS
SELECT
    window,
    intDiv({step:UInt32} + 9, 10) * 10 AS width,
    toDateTime(intDiv(toUnixTimestamp(window), width) * width, 'UTC') AS time,
    hash_domain, model, replica, dp_rank, group_idx, filled_blocks, filled_tokens, promoted_tokens, peer_tokens,
    peer_and_evicted_tokens, evicted_tokens, evicted_elsewhere_tokens, cleared_tokens, cold_tokens, unknown_tokens,
    regret_hist, sampled_one_in, trust
FROM {database}.fills_10s FINAL
WHERE {seconds:UInt32} = 10
    AND window >= {from:DateTime('UTC')}
    AND window <= {to:DateTime('UTC')}
    AND toStartOfHour(window) >= toStartOfHour({from:DateTime('UTC')})
    AND toStartOfHour(window) <= {to:DateTime('UTC')}
UNION ALL
SELECT
    window,
    intDiv({step:UInt32} + 59, 60) * 60 AS width,
    toDateTime(intDiv(toUnixTimestamp(window), width) * width, 'UTC') AS time,
    hash_domain, model, replica, dp_rank, group_idx, filled_blocks, filled_tokens, promoted_tokens, peer_tokens,
    peer_and_evicted_tokens, evicted_tokens, evicted_elsewhere_tokens, cleared_tokens, cold_tokens, unknown_tokens,
    regret_hist, sampled_one_in, trust
FROM {database}.fills_1m FINAL
WHERE {seconds:UInt32} = 60
    AND window >= toStartOfMinute({from:DateTime('UTC')})
    AND window <= {to:DateTime('UTC')}
    AND toStartOfHour(window) >= toStartOfHour({from:DateTime('UTC')})
    AND toStartOfHour(window) <= {to:DateTime('UTC')}
UNION ALL
SELECT
    window,
    intDiv({step:UInt32} + 3599, 3600) * 3600 AS width,
    toDateTime(intDiv(toUnixTimestamp(window), width) * width, 'UTC') AS time,
    hash_domain, model, replica, dp_rank, group_idx, filled_blocks, filled_tokens, promoted_tokens, peer_tokens,
    peer_and_evicted_tokens, evicted_tokens, evicted_elsewhere_tokens, cleared_tokens, cold_tokens, unknown_tokens,
    regret_hist, sampled_one_in, trust
FROM {database}.fills_1h FINAL
WHERE {seconds:UInt32} = 3600
    AND window >= toStartOfHour({from:DateTime('UTC')})
    AND window <= {to:DateTime('UTC')}
    AND toStartOfMonth(window) >= toStartOfMonth({from:DateTime('UTC')})
    AND toStartOfMonth(window) <= {to:DateTime('UTC')};

CREATE OR REPLACE VIEW {database}.fills_series AS
SELECT *
FROM {database}.fills_windows(
    from = {from:DateTime('UTC')}, to = {to:DateTime('UTC')}, step = {step:UInt32},
    seconds = (SELECT seconds FROM {database}.finest(from = {from:DateTime('UTC')}, to = {to:DateTime('UTC')}))
);

-- capacity_curve_series of windows of `seconds`.
CREATE VIEW IF NOT EXISTS {database}.capacity_curve_windows AS
SELECT window, hash_domain, model, replica, dp_rank, group_idx, needed_hist, sampled_one_in, trust
FROM {database}.capacity_curve_10s FINAL
WHERE {seconds:UInt32} = 10
    AND window >= {from:DateTime('UTC')}
    AND window <= {to:DateTime('UTC')}
    AND toStartOfHour(window) >= toStartOfHour({from:DateTime('UTC')})
    AND toStartOfHour(window) <= {to:DateTime('UTC')}
UNION ALL
SELECT window, hash_domain, model, replica, dp_rank, group_idx, needed_hist, sampled_one_in, trust
FROM {database}.capacity_curve_1m FINAL
WHERE {seconds:UInt32} = 60
    AND window >= toStartOfMinute({from:DateTime('UTC')})
    AND window <= {to:DateTime('UTC')}
    AND toStartOfHour(window) >= toStartOfHour({from:DateTime('UTC')})
    AND toStartOfHour(window) <= {to:DateTime('UTC')}
UNION ALL
SELECT window, hash_domain, model, replica, dp_rank, group_idx, needed_hist, sampled_one_in, trust
FROM {database}.capacity_curve_1h FINAL
WHERE {seconds:UInt32} = 3600
    AND window >= toStartOfHour({from:DateTime('UTC')})
    AND window <= {to:DateTime('UTC')}
    AND toStartOfMonth(window) >= toStartOfMonth({from:DateTime('UTC')})
    AND toStartOfMonth(window) <= {to:DateTime('UTC')};

CREATE OR REPLACE VIEW {database}.capacity_curve_series AS
SELECT *
FROM {database}.capacity_curve_windows(
    from = {from:DateTime('UTC')}, to = {to:DateTime('UTC')},
    seconds = (SELECT seconds FROM {database}.finest(from = {from:DateTime('UTC')}, to = {to:DateTime('UTC')}))
);

-- hit_potential_series of windows of `seconds`.
CREATE VIEW IF NOT EXISTS {database}.hit_potential_windows AS
SELECT
    fills.model AS model,
    fills.replica AS replica,
    fills.hash_domain AS hash_domain,
    filled_blocks,
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
    -- An engine counts for all its hash domains: the last one has its counters, and what was avoidable in any of them.
    if(max((last, hash_domain)) OVER replicas = (last, hash_domain), engine.queried, NULL) AS queried_tokens,
    if(isNull(queried_tokens), NULL, engine.hit) AS hit_tokens,
    hit_tokens / nullIf(queried_tokens, 0) AS actual_hit_rate,
    least(queried_tokens, hit_tokens + sum(evicted_tokens + peer_and_evicted_tokens + cleared_tokens) OVER replicas)
        / nullIf(queried_tokens, 0) AS own_ideal_hit_rate,
    least(queried_tokens, hit_tokens + sum(avoidable_tokens) OVER replicas) / nullIf(queried_tokens, 0)
        AS ideal_hit_rate,
    fills.sampled_one_in AS sampled_one_in,
    fills.trust AS trust
FROM
(
    SELECT
        hash_domain,
        model,
        replica,
        group_idx,
        max(window) AS last,
        sum(filled_blocks) AS filled_blocks,
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
    FROM {database}.fills_windows(
        from = {from:DateTime('UTC')}, to = {to:DateTime('UTC')}, step = 10, seconds = {seconds:UInt32}
    )
    GROUP BY hash_domain, model, replica, group_idx
    ORDER BY filled_tokens DESC, group_idx
    LIMIT 1 BY hash_domain, model, replica
) AS fills
LEFT JOIN
(
    SELECT model, replica, sum(queried) AS queried, sum(hit) AS hit
    FROM {database}.engine_hits_windows(
        from = {from:DateTime('UTC')}, to = {to:DateTime('UTC')}, seconds = {seconds:UInt32}
    )
    GROUP BY model, replica
) AS engine ON engine.model = fills.model AND engine.replica = fills.replica
WINDOW replicas AS (PARTITION BY fills.model, fills.replica)
SETTINGS join_use_nulls = 1;

-- Per replica: prefill work done, what of it had been done before and who could have saved it, and the hit rates
-- behind it. Where an engine keeps several KV-cache groups, those of the group that filled most tokens (of equal ones
-- the first): the others hold the same tokens once more. Where a replica had several hash domains in the range, its
-- hit rates stand at the last one.
CREATE OR REPLACE VIEW {database}.hit_potential AS
SELECT *
FROM {database}.hit_potential_windows(from = {from:DateTime('UTC')}, to = {to:DateTime('UTC')}, seconds = 10);

-- hit_potential from the table that fits the range; what an engine counted between its last scrape that is read and a
-- restart is missing.
CREATE OR REPLACE VIEW {database}.hit_potential_series AS
SELECT *
FROM {database}.hit_potential_windows(
    from = {from:DateTime('UTC')}, to = {to:DateTime('UTC')},
    seconds = (SELECT seconds FROM {database}.finest(from = {from:DateTime('UTC')}, to = {to:DateTime('UTC')}))
);

-- capacity_gain_series of windows of `seconds`.
CREATE VIEW IF NOT EXISTS {database}.capacity_gain_windows AS
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
        FROM {database}.fills_windows(
            from = {from:DateTime('UTC')}, to = {to:DateTime('UTC')}, step = 10, seconds = {seconds:UInt32}
        )
        GROUP BY hash_domain, model, replica, group_idx
        ORDER BY filled_tokens DESC, group_idx
        LIMIT 1 BY hash_domain, model, replica
    ) AS fills
    INNER JOIN
    (
        SELECT
            hash_domain,
            replica,
            group_idx,
            sumForEach(needed_hist) AS needed
        FROM {database}.capacity_curve_windows(
            from = {from:DateTime('UTC')}, to = {to:DateTime('UTC')}, seconds = {seconds:UInt32}
        )
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

-- Per replica: with so much more cache on each of its ranks, at least so much of the fills would have been hits.
-- Bytes are 0 where the settings do not say `kv_bytes_per_token` of the model. The group as in hit_potential.
CREATE OR REPLACE VIEW {database}.capacity_gain AS
SELECT *
FROM {database}.capacity_gain_windows(from = {from:DateTime('UTC')}, to = {to:DateTime('UTC')}, seconds = 10);

-- capacity_gain from the table that fits the range.
CREATE OR REPLACE VIEW {database}.capacity_gain_series AS
SELECT *
FROM {database}.capacity_gain_windows(
    from = {from:DateTime('UTC')}, to = {to:DateTime('UTC')},
    seconds = (SELECT seconds FROM {database}.finest(from = {from:DateTime('UTC')}, to = {to:DateTime('UTC')}))
);

-- redundancy_series of windows of `seconds`.
CREATE VIEW IF NOT EXISTS {database}.redundancy_windows AS
SELECT
    window,
    intDiv({step:UInt32} + 9, 10) * 10 AS width,
    toDateTime(intDiv(toUnixTimestamp(window), width) * width, 'UTC') AS time,
    hash_domain, model, medium, group_idx, owners_1, owners_2, owners_3, owners_4_7, owners_8_up,
    unique_tokens, physical_tokens, sampled_one_in, trust
FROM {database}.redundancy_10s FINAL
WHERE {seconds:UInt32} = 10
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
WHERE {seconds:UInt32} = 60
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
WHERE {seconds:UInt32} = 3600
    AND window >= toStartOfHour({from:DateTime('UTC')})
    AND window <= {to:DateTime('UTC')}
    AND toStartOfMonth(window) >= toStartOfMonth({from:DateTime('UTC')})
    AND toStartOfMonth(window) <= {to:DateTime('UTC')};

CREATE OR REPLACE VIEW {database}.redundancy_series AS
SELECT *
FROM {database}.redundancy_windows(
    from = {from:DateTime('UTC')}, to = {to:DateTime('UTC')}, step = {step:UInt32},
    seconds = (SELECT seconds FROM {database}.finest(from = {from:DateTime('UTC')}, to = {to:DateTime('UTC')}))
);

-- prefix_refills_series of windows of `seconds`.
CREATE VIEW IF NOT EXISTS {database}.prefix_refills_windows AS
SELECT window, hash_domain, model, group_idx, lora, prefix, refilled_tokens AS refilled
FROM {database}.hot_prefixes_10s FINAL
WHERE {seconds:UInt32} = 10
    AND window >= {from:DateTime('UTC')}
    AND window <= {to:DateTime('UTC')}
    AND toStartOfHour(window) >= toStartOfHour({from:DateTime('UTC')})
    AND toStartOfHour(window) <= {to:DateTime('UTC')}
UNION ALL
SELECT window, hash_domain, model, group_idx, lora, prefix, refilled_tokens AS refilled
FROM {database}.hot_prefixes_1m FINAL
ARRAY JOIN lora, prefix, refilled_tokens
WHERE {seconds:UInt32} = 60
    AND window >= toStartOfMinute({from:DateTime('UTC')})
    AND window <= {to:DateTime('UTC')}
    AND toStartOfHour(window) >= toStartOfHour({from:DateTime('UTC')})
    AND toStartOfHour(window) <= {to:DateTime('UTC')}
UNION ALL
SELECT window, hash_domain, model, group_idx, lora, prefix, refilled_tokens AS refilled
FROM {database}.hot_prefixes_1h FINAL
ARRAY JOIN lora, prefix, refilled_tokens
WHERE {seconds:UInt32} = 3600
    AND window >= toStartOfHour({from:DateTime('UTC')})
    AND window <= {to:DateTime('UTC')}
    AND toStartOfMonth(window) >= toStartOfMonth({from:DateTime('UTC')})
    AND toStartOfMonth(window) <= {to:DateTime('UTC')};

-- Tokens filled again in each window, by prefix, from the table that fits the range.
CREATE OR REPLACE VIEW {database}.prefix_refills_series AS
SELECT *
FROM {database}.prefix_refills_windows(
    from = {from:DateTime('UTC')}, to = {to:DateTime('UTC')},
    seconds = (SELECT seconds FROM {database}.finest(from = {from:DateTime('UTC')}, to = {to:DateTime('UTC')}))
);

-- coinciding_restarts of windows of `seconds`, and of `seconds_from_hour_before` where the hour before the range is
-- read as well.
CREATE VIEW IF NOT EXISTS {database}.coinciding_restarts_windows AS
WITH
    episodes AS
    (
        SELECT
            hash_domain,
            toDateTime(min(at), 'UTC') AS begun,
            arraySort(groupUniqArray(replica)) AS restarted
        FROM
        (
            SELECT hash_domain, replica, at, sum(apart) OVER (PARTITION BY hash_domain ORDER BY at, replica) AS episode
            FROM
            (
                SELECT
                    hash_domain,
                    replica,
                    closed_at AS at,
                    dateDiff('second', lagInFrame(at, 1, at) OVER
                        (PARTITION BY hash_domain ORDER BY at, replica ROWS BETWEEN 1 PRECEDING AND CURRENT ROW), at)
                        >= 300 AS apart
                FROM {database}.sources FINAL
                WHERE closed_reason IN ('restarted', 'superseded')
                    AND closed_at >= {from:DateTime('UTC')} - INTERVAL 1 HOUR
                    AND closed_at <= {to:DateTime('UTC')}
            )
        )
        GROUP BY hash_domain, episode
    ),
    refills AS
    (
        SELECT hash_domain, fill.1 AS ended, sum(fill.2) AS cleared
        FROM
        (
            SELECT
                hash_domain,
                replica,
                group_idx,
                sum(filled_tokens) AS filled,
                groupArrayIf((toDateTime(window + width, 'UTC'), cleared_tokens), cleared_tokens > 0) AS fills
            FROM {database}.fills_windows(
                from = {from:DateTime('UTC')}, to = {to:DateTime('UTC')}, step = 10, seconds = {seconds:UInt32}
            )
            GROUP BY hash_domain, replica, group_idx
            ORDER BY filled DESC, group_idx
            LIMIT 1 BY hash_domain, replica
        )
        ARRAY JOIN fills AS fill
        GROUP BY hash_domain, ended
    ),
    shared AS
    (
        SELECT
            hash_domain,
            toDateTime(window + width + 10, 'UTC') AS known,
            1 - sum(owners_1) / sum(owners_1 + owners_2 + owners_3 + owners_4_7 + owners_8_up)
                * sum(unique_tokens) / sum(physical_tokens) AS copies
        FROM {database}.redundancy_windows(
            from = {from:DateTime('UTC')} - INTERVAL 1 HOUR, to = {to:DateTime('UTC')}, step = 10,
            seconds = {seconds_from_hour_before:UInt32}
        )
        WHERE medium = 'gpu'
        GROUP BY hash_domain, window, width
        HAVING sum(physical_tokens) > 0
    )
SELECT
    losses.hash_domain AS hash_domain,
    argMax(losses.restarted, losses.cleared) AS restarted,
    argMax(losses.begun, losses.cleared) AS begun,
    sum(losses.cleared) AS cleared,
    toUInt64(sum(losses.cleared * shared.copies)) AS spared
FROM
(
    SELECT
        refills.hash_domain AS hash_domain,
        episodes.begun AS begun,
        any(episodes.restarted) AS restarted,
        sum(refills.cleared) AS cleared
    FROM refills
    ASOF INNER JOIN episodes ON refills.hash_domain = episodes.hash_domain AND refills.ended > episodes.begun
    GROUP BY hash_domain, begun
    HAVING length(restarted) > 1
) AS losses
ASOF LEFT JOIN shared ON losses.hash_domain = shared.hash_domain AND losses.begun >= shared.known
GROUP BY hash_domain
SETTINGS join_use_nulls = 0;

-- Restarts of several replicas of a hash domain with less than five minutes from one to the next (of the range and the
-- hour before it), those after which most was filled again first: `cleared` counts what was filled again after all of
-- them, and `spared` the part of it that one of the others would still have held, had they restarted in turn. How many
-- copies had another owner is taken from the last window but one before.
CREATE OR REPLACE VIEW {database}.coinciding_restarts AS
SELECT *
FROM {database}.coinciding_restarts_windows(
    from = {from:DateTime('UTC')}, to = {to:DateTime('UTC')},
    seconds = (SELECT seconds FROM {database}.finest(from = {from:DateTime('UTC')}, to = {to:DateTime('UTC')})),
    seconds_from_hour_before = (
        SELECT seconds
        FROM {database}.finest(from = {from:DateTime('UTC')} - INTERVAL 1 HOUR, to = {to:DateTime('UTC')})
    )
);

-- new_prefixes of windows of `seconds`.
CREATE VIEW IF NOT EXISTS {database}.new_prefixes_windows AS
WITH toIntervalSecond(dateDiff('second', {from:DateTime('UTC')}, {to:DateTime('UTC')}) + 1) AS length
SELECT
    hash_domain,
    lora,
    leftPad(lower(hex(prefix)), 16, '0') AS first_block,
    since,
    refilled_tokens,
    of_all - refilled_tokens AS others_refilled_tokens
FROM
(
    SELECT
        hash_domain,
        group_idx,
        lora,
        prefix,
        min(window) AS since,
        min(min(window)) OVER (PARTITION BY hash_domain) AS known_since,
        sumIf(refilled, window >= {from:DateTime('UTC')}) AS refilled_tokens,
        sum(refilled_tokens) OVER (PARTITION BY hash_domain, group_idx) AS of_all
    FROM {database}.prefix_refills_windows(
        from = {from:DateTime('UTC')} - length, to = {to:DateTime('UTC')}, seconds = {seconds:UInt32}
    )
    GROUP BY hash_domain, group_idx, lora, prefix
)
WHERE since >= {from:DateTime('UTC')} AND since >= known_since + INTERVAL 5 MINUTE AND refilled_tokens > 0
ORDER BY refilled_tokens DESC, first_block
LIMIT 1 BY hash_domain, first_block, lora;

-- Prefixes that were not listed before, though kvlens followed the hash domain for five minutes or more (in the range
-- or, as long, before it), and what the other ones refilled.
CREATE OR REPLACE VIEW {database}.new_prefixes AS
WITH
    toIntervalSecond(dateDiff('second', {from:DateTime('UTC')}, {to:DateTime('UTC')}) + 1) AS length,
    (SELECT seconds FROM {database}.finest(from = {from:DateTime('UTC')} - length, to = {to:DateTime('UTC')})) AS windows
SELECT *
FROM {database}.new_prefixes_windows(
    from = {from:DateTime('UTC')}, to = {to:DateTime('UTC')}, seconds = windows
);

-- observed of windows of `length` seconds.
CREATE VIEW IF NOT EXISTS {database}.observed_windows AS
WITH
    multiIf(
        {length:UInt32} = 10, toDateTime(intDiv(toUnixTimestamp({from:DateTime('UTC')}) + 9, 10) * 10, 'UTC'),
        {length:UInt32} = 60, toStartOfMinute({from:DateTime('UTC')}),
        toStartOfHour({from:DateTime('UTC')})
    ) AS begin,
    multiIf(
        {length:UInt32} = 10, toDateTime(intDiv(toUnixTimestamp({to:DateTime('UTC')}) + 10, 10) * 10, 'UTC'),
        {length:UInt32} = 60, toStartOfMinute({to:DateTime('UTC')}) + INTERVAL 1 MINUTE,
        toStartOfHour({to:DateTime('UTC')}) + INTERVAL 1 HOUR
    ) AS end
SELECT
    greatest(begin, ifNull(minOrNull(toDateTime(opened_at, 'UTC')), begin)) AS since,
    greatest(10, dateDiff('second', since, least(end, greatest(now('UTC'), {to:DateTime('UTC')} + INTERVAL 1 SECOND))))
        AS seconds
FROM {database}.sources
WHERE opened_at <= {to:DateTime('UTC')}
    AND (closed_at IS NULL OR closed_at >= least(begin, {from:DateTime('UTC')}));

-- For how many `seconds` `since` the windows read of a range say what was, and kvlens knew of a source: rates are over
-- these. Windows of minutes and hours in which the range begins or ends are read whole, that of now as far as it is.
CREATE OR REPLACE VIEW {database}.observed AS
SELECT *
FROM {database}.observed_windows(
    from = {from:DateTime('UTC')}, to = {to:DateTime('UTC')},
    length = (SELECT seconds FROM {database}.finest(from = {from:DateTime('UTC')}, to = {to:DateTime('UTC')}))
);

-- Streams with their trust when their newest rows came, and the `end` of these. Where no stream has ten-second rows of
-- the last half hour of the range (`exact`), it is that of the newest window of `seconds`: at the latest then, and before
-- that half hour, unless its ten-second rows are too old to be kept.
CREATE VIEW IF NOT EXISTS {database}.latest_streams AS
SELECT
    model,
    replica,
    dp_rank,
    argMax(part.trust, (part.exact, part.window)) AS trust,
    max((part.exact, part.window, part.end)) AS latest,
    latest.1 AS exact,
    latest.2 AS window,
    latest.3 AS end
FROM
(
    SELECT model, replica, dp_rank, trust, true AS exact, window, window + INTERVAL 10 SECOND AS end
    FROM {database}.stream_health(from = {to:DateTime('UTC')} - INTERVAL 30 MINUTE, to = {to:DateTime('UTC')})
    UNION ALL
    SELECT
        model, replica, dp_rank, trust, false AS exact, window,
        if(
            {to:DateTime('UTC')} - INTERVAL 30 MINUTE > now() - INTERVAL 7 DAY,
            least(window + width, {to:DateTime('UTC')} - INTERVAL 30 MINUTE),
            window + width
        ) AS end
    FROM {database}.stream_health_windows(
        from = {from:DateTime('UTC')}, to = {to:DateTime('UTC')}, step = 10, seconds = {seconds:UInt32}
    )
) AS part
GROUP BY model, replica, dp_rank;

-- Fills of a range and, `earlier`, of the one before it, which begins at `before`: of each replica those of the group
-- that filled most, as in hit_potential_windows. Both are read at once: often they lie in the same hours.
CREATE VIEW IF NOT EXISTS {database}.fills_of_both AS
WITH
    {before:DateTime('UTC')} AS past_since,
    {from:DateTime('UTC')} AS now_since,
    {to:DateTime('UTC')} AS now_until,
    {seconds:UInt32} AS now_seconds,
    {seconds_before:UInt32} AS past_seconds
SELECT
    earlier, hash_domain, model, replica, group_idx,
    max(until) AS last,
    sum(filled) AS filled,
    sum(peer) AS peer,
    sum(peer_and_evicted) AS peer_and_evicted,
    sum(evicted) AS evicted,
    sum(evicted_elsewhere) AS evicted_elsewhere,
    sum(cleared) AS cleared,
    sum(cold) AS cold,
    sum(unknown) AS unknown,
    max(one_in) AS one_in,
    max(worst) AS worst
FROM
(
    SELECT
        hash_domain, model, replica, group_idx, ranges,
        max(window) AS until,
        sum(filled_tokens) AS filled,
        sum(peer_tokens) AS peer,
        sum(peer_and_evicted_tokens) AS peer_and_evicted,
        sum(evicted_tokens) AS evicted,
        sum(evicted_elsewhere_tokens) AS evicted_elsewhere,
        sum(cleared_tokens) AS cleared,
        sum(cold_tokens) AS cold,
        sum(unknown_tokens) AS unknown,
        max(sampled_one_in) AS one_in,
        max(trust) AS worst
    FROM
    (
        SELECT
            window, hash_domain, model, replica, group_idx, filled_tokens, peer_tokens, peer_and_evicted_tokens,
            evicted_tokens, evicted_elsewhere_tokens, cleared_tokens, cold_tokens, unknown_tokens, sampled_one_in,
            trust,
            (now_seconds = 10 AND window >= now_since) + 2 * (past_seconds = 10 AND window < now_since) AS ranges
        FROM {database}.fills_10s FINAL
        WHERE (now_seconds = 10 OR past_seconds = 10)
            AND window >= if(past_seconds = 10, past_since, now_since)
            AND window <= if(now_seconds = 10, now_until, now_since - INTERVAL 1 SECOND)
            AND toStartOfHour(window) >= toStartOfHour(if(past_seconds = 10, past_since, now_since))
            AND toStartOfHour(window) <= if(now_seconds = 10, now_until, now_since - INTERVAL 1 SECOND)
        UNION ALL
        SELECT
            window, hash_domain, model, replica, group_idx, filled_tokens, peer_tokens, peer_and_evicted_tokens,
            evicted_tokens, evicted_elsewhere_tokens, cleared_tokens, cold_tokens, unknown_tokens, sampled_one_in,
            trust,
            (now_seconds = 60 AND window >= toStartOfMinute(now_since))
                + 2 * (past_seconds = 60 AND window < now_since) AS ranges
        FROM {database}.fills_1m FINAL
        WHERE (now_seconds = 60 OR past_seconds = 60)
            AND window >= toStartOfMinute(if(past_seconds = 60, past_since, now_since))
            AND window <= if(now_seconds = 60, now_until, now_since - INTERVAL 1 SECOND)
            AND toStartOfHour(window) >= toStartOfHour(if(past_seconds = 60, past_since, now_since))
            AND toStartOfHour(window) <= if(now_seconds = 60, now_until, now_since - INTERVAL 1 SECOND)
        UNION ALL
        SELECT
            window, hash_domain, model, replica, group_idx, filled_tokens, peer_tokens, peer_and_evicted_tokens,
            evicted_tokens, evicted_elsewhere_tokens, cleared_tokens, cold_tokens, unknown_tokens, sampled_one_in,
            trust,
            (now_seconds = 3600 AND window >= toStartOfHour(now_since))
                + 2 * (past_seconds = 3600 AND window < now_since) AS ranges
        FROM {database}.fills_1h FINAL
        WHERE (now_seconds = 3600 OR past_seconds = 3600)
            AND window >= toStartOfHour(if(past_seconds = 3600, past_since, now_since))
            AND window <= if(now_seconds = 3600, now_until, now_since - INTERVAL 1 SECOND)
            AND toStartOfMonth(window) >= toStartOfMonth(if(past_seconds = 3600, past_since, now_since))
            AND toStartOfMonth(window) <= if(now_seconds = 3600, now_until, now_since - INTERVAL 1 SECOND)
    )
    GROUP BY hash_domain, model, replica, group_idx, ranges
)
ARRAY JOIN arrayFilter(one -> bitTest(ranges, one), [0, 1]) AS earlier
GROUP BY earlier, hash_domain, model, replica, group_idx
ORDER BY filled DESC, group_idx
LIMIT 1 BY earlier, hash_domain, model, replica;

-- What engines counted in a range and, `earlier`, in the one before it, which begins at `before`: as the sums of
-- engine_hits_windows. What was last counted before the rows that serve a range does not count for it.
CREATE VIEW IF NOT EXISTS {database}.engine_hits_of_both AS
WITH
    {before:DateTime('UTC')} AS past_since,
    {from:DateTime('UTC')} AS now_since,
    {to:DateTime('UTC')} AS now_until,
    {seconds:UInt32} AS now_seconds,
    {seconds_before:UInt32} AS past_seconds
SELECT model, replica, each.1 AS earlier, toNullable(each.2) AS queried, toNullable(each.3) AS hit
FROM
(
    SELECT
        model, replica,
        sumIf(queries - if(queries < queries_before, 0, queries_before), past) AS queried_past,
        sumIf(hits - if(queries < queries_before, 0, hits_before), past) AS hit_past,
        sumIf(queries - if(queries < since_queries, 0, since_queries), now) AS queried_now,
        sumIf(hits - if(queries < since_queries, 0, since_hits), now) AS hit_now,
        countIf(now) AS counted_now,
        countIf(past) AS counted_past
    FROM
    (
        SELECT
            model, replica, queries, hits, now, past,
            coalesce(lagInFrame(toNullable(queries)) OVER scrapes, first_queries) AS queries_before,
            coalesce(lagInFrame(toNullable(hits)) OVER scrapes, first_hits) AS hits_before,
            lagInFrame(at, 1, at) OVER scrapes < begin AS apart,
            if(apart, first_queries, queries_before) AS since_queries,
            if(apart, first_hits, hits_before) AS since_hits
        FROM
        (
            SELECT
                model, replica, dp_rank, 10 AS length, time AS at, time,
                toDateTime64(now_since, 3, 'UTC') - INTERVAL 1 MINUTE AS begin,
                now_seconds = 10 AND time >= now_since AS now,
                past_seconds = 10 AND time >= past_since AND time < now_since + INTERVAL 9 SECOND AS past,
                toInt64(assumeNotNull(prefix_cache_queries)) AS queries,
                toInt64(assumeNotNull(prefix_cache_hits)) AS hits,
                queries AS first_queries, hits AS first_hits
            FROM {database}.engine_counters FINAL
            WHERE (now_seconds = 10 OR past_seconds = 10)
                AND time >= if(past_seconds = 10, past_since, now_since) - INTERVAL 1 MINUTE
                AND time < if(now_seconds = 10, now_until, now_since - INTERVAL 1 SECOND) + INTERVAL 10 SECOND
                AND toStartOfHour(time)
                    >= toStartOfHour(if(past_seconds = 10, past_since, now_since) - INTERVAL 1 MINUTE)
                AND toStartOfHour(time)
                    <= if(now_seconds = 10, now_until, now_since - INTERVAL 1 SECOND) + INTERVAL 10 SECOND
                AND prefix_cache_queries IS NOT NULL
                AND prefix_cache_hits IS NOT NULL
            UNION ALL
            SELECT
                model, replica, dp_rank, 60 AS length, toDateTime64(window, 3, 'UTC') AS at, newest.time AS time,
                toDateTime64(toStartOfMinute(now_since), 3, 'UTC') - INTERVAL 1 MINUTE AS begin,
                now_seconds = 60 AND newest.time >= toStartOfMinute(now_since) AS now,
                past_seconds = 60 AND newest.time >= toStartOfMinute(past_since) AND window < now_since AS past,
                newest.queries AS queries, newest.hits AS hits,
                oldest.queries AS first_queries, oldest.hits AS first_hits
            FROM
            (
                SELECT model, replica, dp_rank, window, materialize(first) AS oldest, materialize(last) AS newest
                FROM {database}.engine_counters_by_minute FINAL
                WHERE (now_seconds = 60 OR past_seconds = 60)
                    AND window >= toStartOfMinute(if(past_seconds = 60, past_since, now_since)) - INTERVAL 1 MINUTE
                    AND window <= if(now_seconds = 60, now_until, now_since - INTERVAL 1 SECOND)
                    AND toStartOfHour(window)
                        >= toStartOfHour(if(past_seconds = 60, past_since, now_since) - INTERVAL 1 MINUTE)
                    AND toStartOfHour(window) <= if(now_seconds = 60, now_until, now_since - INTERVAL 1 SECOND)
            )
            UNION ALL
            SELECT
                model, replica, dp_rank, 3600 AS length, toDateTime64(window, 3, 'UTC') AS at, newest.time AS time,
                toDateTime64(toStartOfHour(now_since), 3, 'UTC') - INTERVAL 1 HOUR AS begin,
                now_seconds = 3600 AND newest.time >= toStartOfHour(now_since) AS now,
                past_seconds = 3600 AND newest.time >= toStartOfHour(past_since) AND window < now_since AS past,
                newest.queries AS queries, newest.hits AS hits,
                oldest.queries AS first_queries, oldest.hits AS first_hits
            FROM
            (
                SELECT model, replica, dp_rank, window, materialize(first) AS oldest, materialize(last) AS newest
                FROM {database}.engine_counters_by_hour FINAL
                WHERE (now_seconds = 3600 OR past_seconds = 3600)
                    AND window >= toStartOfHour(if(past_seconds = 3600, past_since, now_since)) - INTERVAL 1 HOUR
                    AND window <= if(now_seconds = 3600, now_until, now_since - INTERVAL 1 SECOND)
                    AND toStartOfMonth(window)
                        >= toStartOfMonth(if(past_seconds = 3600, past_since, now_since) - INTERVAL 1 HOUR)
                    AND toStartOfMonth(window) <= if(now_seconds = 3600, now_until, now_since - INTERVAL 1 SECOND)
            )
        )
        WINDOW scrapes AS
            (PARTITION BY model, replica, dp_rank, length ORDER BY time ROWS BETWEEN 1 PRECEDING AND CURRENT ROW)
    )
    WHERE now OR past
    GROUP BY model, replica
)
ARRAY JOIN
    arrayFilter(one -> one.4 > 0, [(0, queried_now, hit_now, counted_now), (1, queried_past, hit_past, counted_past)])
        AS each;

-- Of a range and, `earlier`, of the one before it, which begins at `before`, what hit_potential_windows and
-- capacity_gain_windows say of a replica, with the fills read once for both; of the earlier one only what is summed up.
CREATE VIEW IF NOT EXISTS {database}.facts_of_both AS
SELECT
    fills.earlier AS earlier,
    fills.hash_domain AS hash_domain,
    fills.model AS model,
    fills.replica AS replica,
    fills.filled AS filled_tokens,
    fills.peer + fills.peer_and_evicted AS routing_tokens,
    fills.evicted + fills.peer_and_evicted AS evicted_tokens,
    fills.cleared AS cleared_tokens,
    fills.peer + fills.peer_and_evicted + fills.evicted + fills.evicted_elsewhere + fills.cleared
        AS avoidable_tokens,
    fills.cold AS cold_tokens,
    fills.unknown AS unknown_tokens,
    -- As in hit_potential_windows.
    if(max((fills.last, fills.hash_domain)) OVER replicas = (fills.last, fills.hash_domain),
        engine.queried, NULL) AS queried_tokens,
    if(isNull(queried_tokens), NULL, engine.hit) AS hit_tokens,
    least(queried_tokens, hit_tokens + sum(avoidable_tokens) OVER replicas) / nullIf(queried_tokens, 0)
        AS ideal_hit_rate,
    fills.one_in AS sampled_one_in,
    fills.worst AS trust,
    if(fills.earlier, [], curve.needed) AS needed,
    if(empty(needed), 0, models.kv_bytes_per_token) AS bytes_per_token,
    cost.rate AS gpu_seconds_per_token,
    if(cost.basis = '', 'unknown', cost.basis) AS rate_basis,
    hashing.hashes = 'alone' AS hashes_alone,
    health.doubt AS doubt
FROM {database}.fills_of_both(
    before = {before:DateTime('UTC')}, from = {from:DateTime('UTC')}, to = {to:DateTime('UTC')},
    seconds = {seconds:UInt32}, seconds_before = {seconds_before:UInt32}
) AS fills
LEFT JOIN {database}.engine_hits_of_both(
    before = {before:DateTime('UTC')}, from = {from:DateTime('UTC')}, to = {to:DateTime('UTC')},
    seconds = {seconds:UInt32}, seconds_before = {seconds_before:UInt32}
) AS engine ON engine.model = fills.model AND engine.replica = fills.replica AND engine.earlier = fills.earlier
LEFT JOIN
(
    SELECT hash_domain, replica, group_idx, sumForEach(needed_hist) AS needed
    FROM {database}.capacity_curve_windows(
        from = {from:DateTime('UTC')}, to = {to:DateTime('UTC')}, seconds = {seconds:UInt32}
    )
    GROUP BY hash_domain, replica, group_idx
) AS curve
    ON curve.hash_domain = fills.hash_domain AND curve.replica = fills.replica
    AND curve.group_idx = fills.group_idx
LEFT JOIN
(
    SELECT model, toFloat64(kv_bytes_per_token) AS kv_bytes_per_token
    FROM {database}.models FINAL
) AS models ON models.model = fills.model
LEFT JOIN
(
    SELECT model, replica, any(gpu_seconds_per_token) AS rate, any(toString(rate_basis)) AS basis
    FROM {database}.prefill_rates(from = {from:DateTime('UTC')}, to = {to:DateTime('UTC')})
    GROUP BY model, replica
) AS cost ON cost.model = fills.model AND cost.replica = fills.replica
LEFT JOIN
(
    SELECT DISTINCT hash_domain, replica, hashes
    FROM {database}.source_hashes
    WHERE isNull(closed_at) AND hashes = 'alone'
) AS hashing ON hashing.hash_domain = fills.hash_domain AND hashing.replica = fills.replica
LEFT JOIN
(
    SELECT model, replica, max(state) AS doubt
    FROM
    (
        SELECT
            model,
            replica,
            if(argMax(drift_blocks, window) > 0, 3, toUInt8(argMax(trust, window)) - 1) AS state
        FROM {database}.stream_health_windows(
            from = {from:DateTime('UTC')}, to = {to:DateTime('UTC')}, step = 10, seconds = {seconds:UInt32}
        )
        GROUP BY model, replica, dp_rank
    )
    GROUP BY model, replica
) AS health ON health.model = fills.model AND health.replica = fills.replica
WINDOW replicas AS (PARTITION BY fills.earlier, fills.model, fills.replica)
SETTINGS join_use_nulls = 0;

-- replica_facts of windows of `seconds`: those of facts_of_both with nothing before.
CREATE VIEW IF NOT EXISTS {database}.replica_facts_windows AS
SELECT * EXCEPT earlier
FROM {database}.facts_of_both(
    before = {from:DateTime('UTC')}, from = {from:DateTime('UTC')}, to = {to:DateTime('UTC')},
    seconds = {seconds:UInt32}, seconds_before = toUInt32(0)
);

-- Per replica, all that findings rest on: what it filled and why; `needed`, the tokens filled again for which 2**k more
-- tokens of cache suffice; what a token of prefill takes; whether its hashes compare; and `doubt` about its streams at
-- the end of the range: 0 complete, 1 partial, 2 events are missing, 3 more blocks than the engine has.
CREATE OR REPLACE VIEW {database}.replica_facts AS
SELECT *
FROM {database}.replica_facts_windows(
    from = {from:DateTime('UTC')}, to = {to:DateTime('UTC')},
    seconds = (SELECT seconds FROM {database}.finest(from = {from:DateTime('UTC')}, to = {to:DateTime('UTC')}))
);

-- latest_streams of a range and, `earlier`, of the one before it, which begins at `before` (of that not `exact`). What
-- is newest of each kind of rows is found first: comparing tuples for each row takes twice as long.
CREATE VIEW IF NOT EXISTS {database}.latest_of_both AS
WITH
    {before:DateTime('UTC')} AS past_since,
    {from:DateTime('UTC')} AS now_since,
    {to:DateTime('UTC')} AS now_until,
    {seconds:UInt32} AS now_seconds,
    {seconds_before:UInt32} AS past_seconds,
    if(past_seconds = 10, past_since, if(now_seconds = 10, now_since, now_until)) AS begin
SELECT
    earlier, model, replica, dp_rank,
    argMax(part.trust, (part.exact, part.window)) AS trust,
    max((part.exact, part.window, part.end)) AS latest,
    latest.1 AS exact,
    latest.2 AS window,
    latest.3 AS end
FROM
(
    SELECT
        model, replica, dp_rank, trust, window, range = 2 AS earlier, range = 0 AS exact,
        if(
            exact OR now_until - INTERVAL 30 MINUTE <= now() - INTERVAL 7 DAY,
            window + width,
            least(window + width, now_until - INTERVAL 30 MINUTE)
        ) AS end
    FROM
    (
        SELECT
            model, replica, dp_rank, width, ranges,
            argMax(rows.trust, rows.window) AS trust, max(rows.window) AS window
        FROM
        (
            SELECT
                model, replica, dp_rank, window, 10 AS width, trust,
                (window >= now_until - INTERVAL 30 MINUTE) + 2 * (now_seconds = 10 AND window >= now_since)
                    + 4 * (past_seconds = 10 AND window >= past_since AND window < now_since) AS ranges
            FROM {database}.stream_health_10s FINAL
            WHERE window >= least(begin, now_until - INTERVAL 30 MINUTE)
                AND window <= now_until
                AND toStartOfHour(window) >= toStartOfHour(least(begin, now_until - INTERVAL 30 MINUTE))
                AND toStartOfHour(window) <= now_until
            UNION ALL
            SELECT
                model, replica, dp_rank, window, 60 AS width, trust,
                2 * (now_seconds = 60 AND window >= toStartOfMinute(now_since))
                    + 4 * (past_seconds = 60 AND window < now_since) AS ranges
            FROM {database}.stream_health_1m FINAL
            WHERE (now_seconds = 60 OR past_seconds = 60)
                AND window >= toStartOfMinute(if(past_seconds = 60, past_since, now_since))
                AND window <= if(now_seconds = 60, now_until, now_since - INTERVAL 1 SECOND)
                AND toStartOfHour(window) >= toStartOfHour(if(past_seconds = 60, past_since, now_since))
                AND toStartOfHour(window) <= if(now_seconds = 60, now_until, now_since - INTERVAL 1 SECOND)
            UNION ALL
            SELECT
                model, replica, dp_rank, window, 3600 AS width, trust,
                2 * (now_seconds = 3600 AND window >= toStartOfHour(now_since))
                    + 4 * (past_seconds = 3600 AND window < now_since) AS ranges
            FROM {database}.stream_health_1h FINAL
            WHERE (now_seconds = 3600 OR past_seconds = 3600)
                AND window >= toStartOfHour(if(past_seconds = 3600, past_since, now_since))
                AND window <= if(now_seconds = 3600, now_until, now_since - INTERVAL 1 SECOND)
                AND toStartOfMonth(window) >= toStartOfMonth(if(past_seconds = 3600, past_since, now_since))
                AND toStartOfMonth(window) <= if(now_seconds = 3600, now_until, now_since - INTERVAL 1 SECOND)
        ) AS rows
        GROUP BY model, replica, dp_rank, width, ranges
    )
    ARRAY JOIN arrayFilter(one -> bitTest(ranges, one), [0, 1, 2]) AS range
) AS part
GROUP BY earlier, model, replica, dp_rank;

-- Answer and findings of the models named (of all, if none is) in one, for half of what both cost: rows of which `part`
-- is `answer`, those of `answer`, then `finding`, those of `findings`: `finding` is the title, `action` the detail. What
-- each level of views below another costs is a tenth of a second of planning: nothing but `answer`, `findings` and
-- `advice` is built on this one, and what only it needs stands in it. The range before is read together with the range.
-- The last setting saves a tenth of a second of planning, too: ClickHouse would look for conditions that follow from
-- those joined by AND.
CREATE OR REPLACE VIEW {database}.briefing AS
WITH
    toIntervalSecond(dateDiff('second', {from:DateTime('UTC')}, {to:DateTime('UTC')}) + 1) AS length,
    (SELECT seconds FROM {database}.finest(from = {from:DateTime('UTC')}, to = {to:DateTime('UTC')})) AS windows,
    (
        SELECT seconds
        FROM {database}.finest(from = {from:DateTime('UTC')} - length, to = {from:DateTime('UTC')} - INTERVAL 1 SECOND)
    ) AS windows_before,
    (
        SELECT seconds
        FROM {database}.finest(from = {from:DateTime('UTC')} - INTERVAL 1 HOUR, to = {to:DateTime('UTC')})
    ) AS windows_from_hour_before,
    (
        SELECT seconds FROM {database}.finest(from = {from:DateTime('UTC')} - length, to = {to:DateTime('UTC')})
    ) AS windows_of_both,
    share -> concat(toString(round(100 * assumeNotNull(share), if(assumeNotNull(share) < 0.0995, 1, 0))), ' %')
        AS percent,
    number -> concat(
        toString(multiIf(number >= 999950, round(number / 1e6, 2), number >= 999.5, round(number / 1e3, 1),
            number >= 9.95, round(number), round(number, 1))),
        multiIf(number >= 999950, 'M', number >= 999.5, 'k', '')) AS short_rate,
    (now, before) -> multiIf(
        isNull(now), '',
        isNull(before), 'nothing to compare with before',
        abs(assumeNotNull(now - before)) < 0.0005, 'as in the range before',
        concat(if(assumeNotNull(now - before) > 0, '▲ ', '▼ '),
            toString(round(100 * abs(assumeNotNull(now - before)), 1)), ' points against the range before')) AS changed,
    number -> multiIf(
        number < 120, concat(toString(number), ' s'),
        number < 7200, concat(toString(intDiv(number, 60)), ' min'),
        number < 172800, concat(toString(intDiv(number, 3600)), ' h'),
        concat(toString(intDiv(number, 86400)), ' days')) AS lasting,
    -- With its date, where a day is shorter than the range and the hour before it.
    at -> formatDateTime(at, if(dateDiff('second', {from:DateTime('UTC')}, {to:DateTime('UTC')}) < 82800, '%H:%i UTC',
        '%F %H:%i UTC')) AS moment,
    number -> concat(
        toString(multiIf(number >= 999950000, round(number / 1e9, 2), number >= 999950, round(number / 1e6, 2),
            number >= 999.5, round(number / 1e3, 1), round(number))),
        multiIf(number >= 999950000, 'G', number >= 999950, 'M', number >= 999.5, 'k', '')) AS short,
    places AS
    (
        SELECT
            earlier,
            hash_domain,
            any(facts.model) AS model,
            own,
            groupArray(facts.replica) AS members,
            groupArray((facts.replica, facts.filled_tokens, facts.gpu_seconds_per_token, facts.rate_basis)) AS rates,
            groupArrayIf(facts.replica, facts.hashes_alone) AS alone,
            groupArrayIf((facts.doubt, facts.unknown_tokens, facts.replica), facts.doubt > 0) AS doubtful,
            groupArrayIf(facts.replica, most > 0) AS evicting,
            sum(facts.filled_tokens) AS filled,
            sumIf(facts.filled_tokens, most > 0) AS filled_evicting,
            sum(facts.routing_tokens) AS routing,
            sum(facts.avoidable_tokens) AS avoidable,
            sum(facts.evicted_tokens) AS all_evicted,
            sum(facts.cleared_tokens) AS cleared,
            sum(ifNull(facts.queried_tokens, 0)) AS queried,
            sum(ifNull(facts.hit_tokens, 0)) AS hit,
            sum(ifNull(facts.ideal_hit_rate * facts.queried_tokens, 0)) AS ideal,
            countIf(facts.avoidable_tokens > 0 AND isNull(facts.gpu_seconds_per_token)) AS without_rate,
            sum(ifNull(facts.avoidable_tokens * facts.gpu_seconds_per_token, 0)) AS gpu_seconds,
            countIf(facts.rate_basis = 'assumed') AS assumed,
            sum(facts.unknown_tokens) AS unknown,
            sum(facts.cold_tokens) AS cold,
            sumIf(facts.unknown_tokens, facts.hashes_alone) AS unknown_alone,
            sumIf(facts.evicted_tokens + facts.unknown_tokens, most > 0) AS evicted,
            countIf(facts.trust != 'complete') AS incomplete,
            countIf(facts.trust != 'complete' AND most > 0) AS incomplete_evicting,
            max(facts.sampled_one_in) AS sampled,
            max(facts.bytes_per_token) AS bytes_per_token,
            arrayCumSum(sumForEach(facts.needed)) AS saved,
            arrayMap((tokens, place) -> tokens / saved[-1] - exp2(place - length(saved)), saved, arrayEnumerate(saved))
                AS ahead,
            indexOf(ahead, arrayMax(ahead)) AS knee
        FROM
        (
            SELECT
                * EXCEPT hash_domain,
                -- What was before is asked for by model only.
                if(earlier, model, replica_facts.hash_domain) AS hash_domain,
                arraySum(needed) AS most,
                if(count() OVER (PARTITION BY earlier, replica_facts.hash_domain) > 1
                    AND 2 * most > sum(most) OVER (PARTITION BY earlier, replica_facts.hash_domain), replica, '') AS own
            FROM {database}.facts_of_both(
                before = {from:DateTime('UTC')} - length, from = {from:DateTime('UTC')}, to = {to:DateTime('UTC')},
                seconds = windows, seconds_before = windows_before
            ) AS replica_facts
        ) AS facts
        GROUP BY earlier, hash_domain, own
    ),
    domains AS
    (
        SELECT
            earlier,
            hash_domain,
            any(places.model) AS model,
            arraySort(groupArrayArray(places.members)) AS replicas,
            groupArrayArray(places.rates) AS rates,
            arraySort(groupArrayArray(places.alone)) AS alone,
            arrayReverseSort(groupArrayArray(places.doubtful)) AS doubtful,
            sum(places.filled) AS filled,
            sum(places.routing) AS routing,
            sum(places.avoidable) AS avoidable,
            (
                filled, avoidable, routing, sum(places.all_evicted), sum(places.cleared), sum(places.queried),
                sum(places.hit), sum(places.ideal), sum(places.without_rate), sum(places.gpu_seconds),
                sum(places.assumed)
            ) AS sums,
            sum(places.unknown) AS unknown,
            sum(places.cold) AS cold,
            sum(places.unknown_alone) AS unknown_alone,
            sum(places.incomplete) AS incomplete,
            max(places.sampled) AS sampled,
            groupArrayIf(
                (arraySort(evicting), saved[knee], greatest(saved[knee], evicted), filled_evicting, saved[-1],
                    toUInt64(exp2(knee - 1)), bytes_per_token, incomplete_evicting),
                knee > 0
            ) AS curves
        FROM places
        GROUP BY earlier, hash_domain
    ),
    prefixes AS
    (
        SELECT
            hash_domain,
            groupArraySorted(2)((-toInt64(refilled_tokens), first_block, since, others_refilled_tokens)) AS news
        FROM {database}.new_prefixes_windows(
            from = {from:DateTime('UTC')}, to = {to:DateTime('UTC')}, seconds = windows_of_both
        )
        GROUP BY hash_domain
    ),
    advice AS
    (
        SELECT
            row_number() OVER (
                ORDER BY is_sums, if(ranked_by = 'tokens', tokens_per_hour, gpu_seconds_per_hour) DESC, kind, hash_domain,
                    subject
            ) AS place,
            kind, model, hash_domain, replicas, subject, finding, action, is_sums, sums, is_doubt, seconds,
            multiIf(
                is_doubt, concat(short(tokens_per_hour), ' tokens/h of unknown cause, at most ', short(at_most_per_hour),
                    ' in doubt'),
                concat('saves ', if(at_least > 0, 'at least ', 'about '), short(tokens_per_hour), ' tokens/h',
                    if(isNull(gpu_seconds_per_hour), '',
                        concat(' (', toString(round(assumeNotNull(gpu_seconds_per_hour) / 3600, 2)), ' GPUs)')),
                    ', at most ', short(at_most_per_hour))) AS figure,
            concat(
                if(incomplete > 0,
                    concat('rests on incomplete data: ', toString(incomplete), ' of ', toString(behind), ' replicas'), ''),
                if(incomplete > 0 AND sampled > 1, '; ', ''),
                if(sampled > 1, concat('estimated from one block in ', toString(sampled)), '')) AS caveat,
            tokens, at_least, at_most, filled_tokens, tokens_per_hour, at_least_per_hour, at_most_per_hour,
            gpu_seconds_per_token, gpu_seconds_per_hour, rate_basis, ranked_by,
            multiIf(is_doubt, 'health', kind = 'capacity' AND length(replicas) = 1, 'replica',
                kind IN ('capacity', 'restarts'), 'model', 'fleet') AS board,
            concat('SELECT * FROM {database}.',
                multiIf(kind = 'restarts', 'coinciding_restarts', kind = 'prefix', 'new_prefixes', 'replica_facts'),
                '(from = ''', toString({from:DateTime('UTC')}), ''', to = ''', toString({to:DateTime('UTC')}),
                ''') WHERE hash_domain = ''', replaceAll(hash_domain, '''', ''''''), '''') AS evidence
        FROM
        (
            SELECT
                * EXCEPT (rated, share, number, bytes, at, many),
                multiIf(
                    kind = 'routing', concat('Another replica held ', percent(share), ' of the prefill of ', model),
                    kind = 'capacity', concat(
                        multiIf(many = 1, subject, many <= 3, arrayStringConcat(replicas, ', '),
                            concat(toString(many), ' replicas of ', model)),
                        if(many = 1, ' evicts what it fills again: ', ' evict what they fill again: '), percent(share),
                        if(many = 1, ' of its prefill', ' of their prefill')),
                    kind = 'restarts', concat(toString(many), ' of ', toString(behind), ' replicas of ', model,
                        ' restarted together at ', moment(at), ': ', percent(share), ' of the prefill was filled again'),
                    kind = 'prefix', concat('Prefix ', subject, ' of ', model, ' is new since ', moment(at), ' and makes ',
                        percent(share), ' of the avoidable prefill'),
                    kind = 'hashes', concat(subject,
                        if(many = 1, ' hashes', concat(' and ', toString(many - 1), ' more hash')),
                        ' differently from the other replicas of ', model, ': nobody can see which prefixes they share'),
                    kind = 'streams', concat(toString(many), ' of ', toString(behind), ' replicas of ', model,
                        transform(number, [3, 2], [' announce more blocks than the engine has', ' lost events for good'],
                            ' ran before kvlens did, so older blocks are unknown'),
                        if(many = 1, ': ', ', first '), subject),
                    ''
                ) AS finding,
                multiIf(
                    kind = 'routing',
                        concat('Route ', model, ' by prefix: send each request to the replica that holds most of it'),
                    kind = 'capacity', concat(
                        'Give ', if(many = 1, subject, 'each of them'), ' ',
                        if(bytes > 0, replaceOne(formatReadableSize(bytes), '.00', ''), concat(toString(number), ' tokens')),
                        ' more KV cache a rank, or a CPU tier with so much more room than the GPU cache'),
                    kind = 'restarts', concat('Restart ', model, ' in rotation, ', toString(greatest(1, intDiv(behind, 8))),
                        ' at a time, and route by prefix: the others still hold what is shared'),
                    kind = 'prefix', concat('Send requests that begin with ', subject,
                        ' to one replica, or undo the change of prompt'),
                    kind = 'hashes', concat('Give all replicas of ', model,
                        ' the same hash algorithm and PYTHONHASHSEED, or these another hash_scheme'),
                    kind = 'streams', transform(number, [3, 2], [
                        'Do not trust its occupancy; clear the cache of the engine or restart it',
                        'Set replay_endpoint, then clear the cache of these engines or restart them in turn'],
                        'Nothing now: a restart or a cleared cache completes it'),
                    ''
                ) AS action,
                if(
                    empty(rated) OR arrayExists(rate -> isNull(rate.3), rated), NULL,
                    arraySum(rate -> rate.2 * assumeNotNull(rate.3), rated) / arraySum(rate -> rate.2, rated)
                ) AS gpu_seconds_per_token,
                tokens_per_hour * gpu_seconds_per_token AS gpu_seconds_per_hour,
                multiIf(isNull(gpu_seconds_per_token), 'unknown', arrayExists(rate -> rate.4 = 'assumed', rated), 'assumed',
                    'measured') AS rate_basis,
                if(countIf(isNull(gpu_seconds_per_token) AND NOT is_sums) OVER () > 0, 'tokens', 'gpu_seconds') AS ranked_by
            FROM
            (
                SELECT
                    model, hash_domain, sums, sampled, seconds,
                    one.1 AS kind, one.2 AS replicas, one.3 AS subject, one.4 AS tokens, one.5 AS at_least, one.6 AS at_most,
                    one.7 AS filled_tokens, one.8 AS incomplete, one.9 AS behind, one.10 AS share, one.11 AS number,
                    one.12 AS bytes, one.13 AS at, length(one.2) AS many,
                    kind IN ('sums', 'past') AS is_sums,
                    kind IN ('hashes', 'streams') AS is_doubt,
                    tokens / seconds * 3600 AS tokens_per_hour,
                    at_least / seconds * 3600 AS at_least_per_hour,
                    at_most / seconds * 3600 AS at_most_per_hour,
                    arrayFilter(rate -> empty(replicas) OR has(replicas, rate.1), rates) AS rated
                FROM
                (
                    SELECT
                        domains.hash_domain AS hash_domain,
                        domains.earlier AS earlier,
                        domains.model AS model,
                        domains.rates AS rates,
                        domains.sampled AS sampled,
                        domains.sums AS sums,
                        length(domains.replicas) AS size,
                        if(earlier, [(
                            'past', [] :: Array(String), '', toUInt64(0), toUInt64(0), toUInt64(0), filled, toUInt64(0),
                            size, toFloat64(0), toUInt64(0), toFloat64(0), toDateTime(0, 'UTC')
                        )], arrayConcat(
                            [(
                                'sums', [] :: Array(String), '', toUInt64(0), toUInt64(0), toUInt64(0), filled, toUInt64(0), size,
                                toFloat64(0), toUInt64(0), toFloat64(0), toDateTime(0, 'UTC')
                            ), (
                                'routing', domains.replicas, '', routing, toUInt64(0), avoidable + unknown, filled, incomplete,
                                size, routing / filled, toUInt64(0), toFloat64(0), toDateTime(0, 'UTC')
                            )],
                            arrayMap(
                                curve -> (
                                    'capacity', curve.1, if(length(curve.1) = 1, curve.1[1], ''), curve.2, curve.2, curve.3,
                                    curve.4, curve.8, length(curve.1), curve.5 / curve.4, curve.6, curve.6 * curve.7,
                                    toDateTime(0, 'UTC')
                                ),
                                curves),
                            if(
                                length(restarts.restarted) <= greatest(1, intDiv(size, 8)), [],
                                [(
                                    'restarts', restarts.restarted, '', restarts.spared, toUInt64(0), restarts.cleared, filled,
                                    incomplete, size, restarts.cleared / filled, toUInt64(0), toFloat64(0), restarts.begun
                                )]),
                            arrayMap(
                                new -> (
                                    'prefix', [] :: Array(String), new.2, toUInt64(-new.1), toUInt64(0),
                                    toUInt64(greatest(-new.1, toInt64(avoidable) - toInt64(new.4))), filled, incomplete, size,
                                    -new.1 / avoidable, toUInt64(0), toFloat64(0), new.3
                                ),
                                arrayFilter(new -> -new.1 >= 0.1 * avoidable, prefixes.news)),
                            if(
                                empty(alone), [],
                                [(
                                    'hashes', alone, alone[1], unknown_alone, toUInt64(0), unknown + cold, filled,
                                    toUInt64(0), length(alone), toFloat64(0), toUInt64(0), toFloat64(0), toDateTime(0, 'UTC')
                                )]),
                            arrayMap(
                                alike -> (
                                    'streams', arrayMap(each -> each.3, alike), alike[1].3,
                                    toUInt64(arraySum(each -> each.2, alike)), toUInt64(0), unknown + cold, filled,
                                    length(alike), size, toFloat64(0), toUInt64(alike[1].1), toFloat64(0),
                                    toDateTime(0, 'UTC')
                                ),
                                arrayFilter(alike -> notEmpty(alike), arrayMap(
                                    doubt -> arrayFilter(each -> each.1 = doubt, doubtful), [3, 2, 1])))
                        )) AS found
                    FROM domains
                    LEFT JOIN {database}.coinciding_restarts_windows(
                        from = {from:DateTime('UTC')}, to = {to:DateTime('UTC')}, seconds = windows,
                        seconds_from_hour_before = windows_from_hour_before
                    ) AS restarts
                        ON restarts.hash_domain = domains.hash_domain
                    LEFT JOIN prefixes ON prefixes.hash_domain = domains.hash_domain
                )
                ARRAY JOIN found AS one
                CROSS JOIN {database}.observed_windows(
                    from = {from:DateTime('UTC')}, to = {to:DateTime('UTC')}, length = windows) AS watched
                WHERE is_sums OR is_doubt OR (tokens > 0 AND tokens >= 0.01 * filled_tokens)
            )
        )
    )
SELECT
    line.1 AS part,
    line.2 AS place,
    line.3 AS title,
    line.4 AS figure,
    line.5 AS detail,
    line.6 AS change,
    line.7 AS value,
    line.8 AS before,
    line.9.2 AS caveat,
    line.9.3 AS kind,
    line.9.4 AS model,
    line.9.5 AS hash_domain,
    line.9.6 AS replicas,
    line.9.7 AS subject,
    line.9.8 AS tokens_per_hour,
    line.9.9 AS at_least_per_hour,
    line.9.10 AS at_most_per_hour,
    line.9.11 AS gpu_seconds_per_hour,
    line.9.12 AS rate_basis,
    line.9.13 AS ranked_by,
    line.9.14 AS board,
    line.9.15 AS evidence,
    line.9.19 AS tokens,
    line.9.20 AS at_least,
    line.9.21 AS at_most,
    line.9.22 AS filled_tokens,
    line.9.23 AS gpu_seconds_per_token
FROM
(
    SELECT
        [
            (
                toUInt32(1), 'Prefill you could avoid', if(now.filled = 0, '', percent(now.avoidable / now.filled)),
                concat(short_rate(now.avoidable / now.seconds), ' tokens/s',
                    if(isNull(now.gpu_seconds), ', its cost is not known',
                        concat(' ≈ ', toString(round(assumeNotNull(now.gpu_seconds) / now.seconds, 2)), ' GPUs, ',
                            if(now.assumed, 'assumed', 'measured')))),
                toNullable(now.avoidable / nullIf(now.filled, 0)), now.avoidable_past / nullIf(now.filled_past, 0)
            ),
            (
                toUInt32(2), 'Hit rate',
                multiIf(now.filled = 0, '', now.queried = 0, 'not known', percent(now.hit / now.queried)),
                if(now.queried = 0, 'kvlens reads the metrics of no engine',
                    concat('up to ', percent(now.ideal / now.queried), ' possible')),
                toNullable(now.hit / nullIf(now.queried, 0)), now.hit_past / nullIf(now.queried_past, 0)
            ),
            (
                toUInt32(3), 'Biggest lever',
                if(now.filled = 0, '', transform(now.lever_kind, ['routing', 'capacity', 'restarts', 'prefix'],
                    ['Routing', 'Cache size', 'Restarts', 'A new prefix'], 'none')),
                if(now.lever_kind = '', 'nothing known would save a hundredth of the prefill',
                    concat(if(now.lever_at_least > 0, 'saves at least ', 'saves about '),
                        percent(now.lever_tokens / now.filled), ' of the prefill, at most ',
                        percent(now.lever_at_most / now.filled))),
                multiIf(now.lever_kind = 'routing', now.routing, now.lever_kind = 'capacity', now.evicted,
                    now.lever_kind = 'restarts', now.cleared, NULL) / nullIf(now.filled, 0),
                multiIf(now.lever_kind = 'routing', now.routing_past, now.lever_kind = 'capacity', now.evicted_past,
                    now.lever_kind = 'restarts', now.cleared_past, NULL) / nullIf(now.filled_past, 0)
            ),
            (
                toUInt32(4), 'Data',
                if(streams.all = 0, '', concat(toString(streams.complete), ' of ', toString(streams.all), ' complete')),
                multiIf(
                    streams.newest.1, concat('newest rows ', toString(streams.age), ' s old'),
                    streams.age > 0, concat('no rows for at least ', lasting(streams.age)),
                    concat('newest rows at most ', lasting(streams.at_most), ' old')),
                toNullable(streams.complete / nullIf(streams.all, 0)),
                streams.complete_past / nullIf(streams.all_past, 0)
            )
        ] AS answers,
        arrayConcat(
            arrayMap(
                one -> (
                    'answer', one.1, one.2, one.3, one.4, changed(one.5, one.6), one.5, one.6,
                    now.found[length(now.found) + 1]  -- beyond the end: all empty
                ),
                arrayFilter(one -> one.3 != '', answers)
            ),
            arrayMap(
                (one, place) -> (
                    'finding', toUInt32(place), one.16, one.17, one.18, '', CAST(NULL, 'Nullable(Float64)'),
                    CAST(NULL, 'Nullable(Float64)'), one
                ),
                now.found, arrayEnumerate(now.found)
            )
        ) AS lines
    FROM
    (
        SELECT
            max(seconds) AS seconds,
            sumIf(sums.1, kind = 'sums') AS filled,
            sumIf(sums.2, kind = 'sums') AS avoidable,
            sumIf(sums.3, kind = 'sums') AS routing,
            sumIf(sums.4, kind = 'sums') AS evicted,
            sumIf(sums.5, kind = 'sums') AS cleared,
            sumIf(sums.6, kind = 'sums') AS queried,
            sumIf(sums.7, kind = 'sums') AS hit,
            sumIf(sums.8, kind = 'sums') AS ideal,
            if(sumIf(sums.9, kind = 'sums') > 0, NULL, sumIf(sums.10, kind = 'sums')) AS gpu_seconds,
            sumIf(sums.11, kind = 'sums') > 0 AS assumed,
            sumIf(sums.1, kind = 'past') AS filled_past,
            sumIf(sums.2, kind = 'past') AS avoidable_past,
            sumIf(sums.3, kind = 'past') AS routing_past,
            sumIf(sums.4, kind = 'past') AS evicted_past,
            sumIf(sums.5, kind = 'past') AS cleared_past,
            sumIf(sums.6, kind = 'past') AS queried_past,
            sumIf(sums.7, kind = 'past') AS hit_past,
            argMinIf(kind, place, NOT is_sums AND NOT is_doubt) AS lever_kind,
            argMinIf(tokens, place, NOT is_sums AND NOT is_doubt) AS lever_tokens,
            argMinIf(at_least, place, NOT is_sums AND NOT is_doubt) AS lever_at_least,
            argMinIf(at_most, place, NOT is_sums AND NOT is_doubt) AS lever_at_most,
            arraySort(groupArrayIf(
                (
                    place, caveat, kind, model, hash_domain, replicas, subject, tokens_per_hour, at_least_per_hour,
                    at_most_per_hour, gpu_seconds_per_hour, rate_basis, ranked_by, board, evidence, finding,
                    advice.figure, action, tokens, at_least, at_most, filled_tokens, gpu_seconds_per_token
                ),
                NOT is_sums
            )) AS found
        FROM advice
        WHERE empty({models:Array(String)}) OR has({models:Array(String)}, model)
    ) AS now
    CROSS JOIN
    (
        SELECT
            maxIf((exact, end, window), NOT earlier) AS newest,
            arrayFilter(
                one -> one.1 = newest.1 AND one.2 >= newest.2 - INTERVAL 30 MINUTE,
                groupArrayIf((exact, end, trust), NOT earlier)
            ) AS lately,
            length(lately) AS all,
            arrayCount(one -> one.3 = 'complete', lately) AS complete,
            greatest(0, dateDiff('second', newest.2, {to:DateTime('UTC')})) AS age,
            dateDiff('second', newest.3, {to:DateTime('UTC')}) AS at_most,
            countIf(earlier) AS all_past,
            countIf(earlier AND trust = 'complete') AS complete_past
        FROM {database}.latest_of_both(
            before = {from:DateTime('UTC')} - length, from = {from:DateTime('UTC')}, to = {to:DateTime('UTC')},
            seconds = windows, seconds_before = windows_before
        )
        WHERE empty({models:Array(String)}) OR has({models:Array(String)}, model)
    ) AS streams
)
ARRAY JOIN lines AS line
ORDER BY part, place
SETTINGS join_use_nulls = 0, optimize_and_compare_chain = 0;
