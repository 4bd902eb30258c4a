-- What engines counted in a range and, `earlier`, in the one before it, which begins at `before`: as the sums of
-- engine_hits_windows. What was last counted before the rows that serve a range does not count for it.
CREATE VIEW {database}.engine_hits_of_both AS
WITH
    {before:DateTime('UTC')} AS past_since,
    {from} AS now_since,
    {to} AS now_until,
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
            -- for 1m, 1h
            SELECT
                model, replica, dp_rank, {length} AS length, toDateTime64(window, 3, 'UTC') AS at, newest.time AS time,
                toDateTime64({start}(now_since), 3, 'UTC') - INTERVAL 1 {unit} AS begin,
                now_seconds = {length} AND newest.time >= {start}(now_since) AS now,
                past_seconds = {length} AND newest.time >= {start}(past_since) AND window < now_since AS past,
                newest.queries AS queries, newest.hits AS hits,
                oldest.queries AS first_queries, oldest.hits AS first_hits
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
    arrayFilter(one -> one.4 > 0, [(0, queried_now, hit_now, counted_now), (1, queried_past, hit_past, counted_past)])
        AS each
