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
            model, replica, dp_rank, time, toDateTime64({from}, 3, 'UTC') AS since,
            toInt64(assumeNotNull(prefix_cache_queries)) AS queries, toInt64(assumeNotNull(prefix_cache_hits)) AS hits,
            queries AS first_queries, hits AS first_hits
        FROM {database}.engine_counters FINAL
        WHERE {seconds:UInt32} = 10
            AND time >= {from} - INTERVAL 1 MINUTE
            AND time < {to} + INTERVAL 10 SECOND
            AND toStartOfHour(time) >= toStartOfHour({from} - INTERVAL 1 MINUTE)
            AND toStartOfHour(time) <= {to} + INTERVAL 10 SECOND
            AND prefix_cache_queries IS NOT NULL
            AND prefix_cache_hits IS NOT NULL
        UNION ALL
        -- for 1m, 1h
        SELECT
            model, replica, dp_rank, newest.time AS time,
            toDateTime64({start}({from}), 3, 'UTC') AS since,
            newest.queries AS queries, newest.hits AS hits, oldest.queries AS first_queries, oldest.hits AS first_hits
        FROM
        (
            -- FINAL does not aggregate an element of a tuple that is read by itself: of scrapes that were not merged yet,
            -- it was that of any one. `materialize` has the whole tuple read; grouping takes twice as long.
            SELECT model, replica, dp_rank, materialize(first) AS oldest, materialize(last) AS newest
            FROM {database}.engine_counters_by_{period} FINAL
            WHERE {seconds:UInt32} = {length}
                AND window >= {start}({from}) - INTERVAL 1 {unit}
                AND window <= {to}
                AND {slice}(window) >= {slice}({from} - INTERVAL 1 {unit})
                AND {slice}(window) <= {to}
        )
        -- end
    )
    WINDOW scrapes AS (PARTITION BY model, replica, dp_rank ORDER BY time ROWS BETWEEN 1 PRECEDING AND CURRENT ROW)
)
WHERE time >= since;

-- Growth of the engines' counters from one scrape to the next one read, of the first one from the start of its
-- period; a counter that fell began again at 0.
CREATE VIEW {database}.engine_hits_series AS
SELECT *
FROM {database}.engine_hits_windows({range}, seconds = {finest});
