-- What engines counted in a range and, `earlier`, in the one before it, which begins at `before`: as the sums of
-- engine_hits_windows, `counted_seconds` for each rank. What was last counted before the rows that serve a range does not count for it.
CREATE VIEW {database}.engine_hits_of_both AS
WITH
    {before:DateTime('UTC')} AS past_since,
    {from} AS now_since,
    {to} AS now_until,
    {seconds:UInt32} AS now_seconds,
    {seconds_before:UInt32} AS past_seconds,
    'Tuple(computed Nullable(Int64), transferred Nullable(Int64))' AS counted
SELECT
    model, replica, each.1 AS earlier, toNullable(each.2) AS queried, toNullable(each.3) AS hit,
    each.5 AS computed, each.6 AS transferred, each.7 AS counted_seconds, each.8 AS counted_ranks
FROM
(
    SELECT
        model, replica,
        sumIf(queries - if(fell, 0, queries_before), past) AS queried_past,
        sumIf(hits - if(fell, 0, hits_before), past) AS hit_past,
        sumIf(queries - if(fell_since, 0, since_queries), now) AS queried_now,
        sumIf(hits - if(fell_since, 0, since_hits), now) AS hit_now,
        countIf(now) AS counted_now,
        countIf(past) AS counted_past,
        uniqExactIf(dp_rank, now) AS ranks_now,
        uniqExactIf(dp_rank, past) AS ranks_past,
        sumIf(tokens.computed - if(fell, 0, tokens_before.computed), past) AS computed_past,
        sumIf(tokens.computed - if(fell_since, 0, since_tokens.computed), now) AS computed_now,
        sumIf(tokens.transferred - if(fell, 0, tokens_before.transferred), past) AS transferred_past,
        sumIf(tokens.transferred - if(fell_since, 0, since_tokens.transferred), now) AS transferred_now,
        sumIf(toUnixTimestamp64Milli(time) - toUnixTimestamp64Milli(time_before), past) / 1000
            / greatest(1, ranks_past) AS seconds_past,
        sumIf(toUnixTimestamp64Milli(time) - toUnixTimestamp64Milli(since_time), now) / 1000
            / greatest(1, ranks_now) AS seconds_now
    FROM
    (
        SELECT
            model, replica, dp_rank, time, queries, hits, tokens, now, past,
            lagInFrame(tokens) OVER scrapes AS told_before,
            CAST(
                (ifNull(told_before.computed, first_tokens.computed),
                    ifNull(told_before.transferred, first_tokens.transferred)),
                counted
            ) AS tokens_before,
            if(apart, first_tokens, tokens_before) AS since_tokens,
            coalesce(lagInFrame(toNullable(time)) OVER scrapes, first_time) AS time_before,
            if(apart, first_time, time_before) AS since_time,
            coalesce(lagInFrame(toNullable(queries)) OVER scrapes, first_queries) AS queries_before,
            coalesce(lagInFrame(toNullable(hits)) OVER scrapes, first_hits) AS hits_before,
            lagInFrame(at, 1, at) OVER scrapes < begin AS apart,
            if(apart, first_queries, queries_before) AS since_queries,
            if(apart, first_hits, hits_before) AS since_hits,
            queries < queries_before OR hits < hits_before AS fell,
            queries < since_queries OR hits < since_hits AS fell_since
        FROM
        (
            SELECT
                model, replica, dp_rank, 10 AS length, time AS at, time,
                toDateTime64(now_since, 3, 'UTC') - INTERVAL 1 MINUTE AS begin,
                now_seconds = 10 AND time >= now_since AS now,
                past_seconds = 10 AND time >= past_since AND time < now_since + INTERVAL 9 SECOND AS past,
                toInt64(assumeNotNull(prefix_cache_queries)) AS queries,
                toInt64(assumeNotNull(prefix_cache_hits)) AS hits,
                CAST((toInt64(computed_tokens), toInt64(transferred_tokens)), counted) AS tokens,
                time AS first_time, queries AS first_queries, hits AS first_hits, tokens AS first_tokens
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
            -- for 1m, 1h
            SELECT
                model, replica, dp_rank, {length} AS length, toDateTime64(window, 3, 'UTC') AS at, newest.time AS time,
                toDateTime64({start}(now_since), 3, 'UTC') - INTERVAL 1 {unit} AS begin,
                now_seconds = {length} AND newest.time >= {start}(now_since) AS now,
                past_seconds = {length} AND newest.time >= {start}(past_since) AND window < now_since AS past,
                newest.queries AS queries, newest.hits AS hits,
                CAST((newest.computed, newest.transferred), counted) AS tokens,
                oldest.time AS first_time, oldest.queries AS first_queries, oldest.hits AS first_hits,
                CAST((oldest.computed, oldest.transferred), counted) AS first_tokens
            FROM
            (
                SELECT model, replica, dp_rank, window, materialize(first) AS oldest, materialize(last) AS newest
                FROM {database}.engine_counters_by_{period} FINAL
                WHERE (now_seconds = {length} OR past_seconds = {length})
                    AND window >= {start}(if(past_seconds = {length}, past_since, now_since)) - INTERVAL 1 {unit}
                    AND window <= if(now_seconds = {length}, now_until, now_since - INTERVAL 1 SECOND)
                    AND {slice}(window)
                        >= {slice}(if(past_seconds = {length}, past_since, now_since) - INTERVAL 1 {unit})
                    AND {slice}(window) <= if(now_seconds = {length}, now_until, now_since - INTERVAL 1 SECOND)
            )
            -- end
        )
        WINDOW scrapes AS
            (PARTITION BY model, replica, dp_rank, length ORDER BY time ROWS BETWEEN 1 PRECEDING AND CURRENT ROW)
    )
    WHERE now OR past
    GROUP BY model, replica
)
ARRAY JOIN
    arrayFilter(one -> one.4 > 0, [
        (0, queried_now, hit_now, counted_now, computed_now, transferred_now, seconds_now, ranks_now),
        (1, queried_past, hit_past, counted_past, computed_past, transferred_past, seconds_past, ranks_past)
    ]) AS each
