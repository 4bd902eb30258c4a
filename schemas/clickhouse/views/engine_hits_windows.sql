-- engine_hits_series of windows of `seconds`.
CREATE VIEW {database}.engine_hits_windows AS
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
WHERE time >= since
