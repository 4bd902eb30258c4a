-- engine_hits_series of windows of `seconds`.
CREATE VIEW {database}.engine_hits_windows AS
WITH
    'Tuple(computed Nullable(Int64), transferred Nullable(Int64), reloaded Nullable(Int64), generated Nullable(Int64))'
        AS counted
SELECT
    model,
    replica,
    dp_rank,
    time,
    (toUnixTimestamp64Milli(time) - toUnixTimestamp64Milli(time_before)) / 1000 AS counted_seconds,
    queries < queries_before OR hits < hits_before AS fell,
    queries - if(fell, 0, queries_before) AS queried,
    hits - if(fell, 0, hits_before) AS hit,
    tokens.computed - if(fell, 0, ifNull(before.computed, first_tokens.computed)) AS computed,
    tokens.transferred - if(fell, 0, ifNull(before.transferred, first_tokens.transferred)) AS transferred,
    tokens.reloaded - if(fell, 0, ifNull(before.reloaded, first_tokens.reloaded)) AS reloaded,
    tokens.generated - if(fell, 0, ifNull(before.generated, first_tokens.generated)) AS generated
FROM
(
    SELECT
        model,
        replica,
        dp_rank,
        time,
        since,
        queries,
        hits,
        tokens,
        first_tokens,
        lagInFrame(tokens) OVER scrapes AS before,
        coalesce(lagInFrame(toNullable(time)) OVER scrapes, first_time) AS time_before,
        coalesce(lagInFrame(toNullable(queries)) OVER scrapes, first_queries) AS queries_before,
        coalesce(lagInFrame(toNullable(hits)) OVER scrapes, first_hits) AS hits_before
    FROM
    (
        SELECT
            model, replica, dp_rank, time, toDateTime64({from}, 3, 'UTC') AS since,
            toInt64(assumeNotNull(prefix_cache_queries)) AS queries, toInt64(assumeNotNull(prefix_cache_hits)) AS hits,
            CAST(
                (toInt64(computed_tokens), toInt64(transferred_tokens), toInt64(reloaded_tokens),
                    toInt64(generation_tokens)),
                counted
            ) AS tokens,
            time AS first_time, queries AS first_queries, hits AS first_hits, tokens AS first_tokens
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
            newest.queries AS queries, newest.hits AS hits,
            CAST((newest.computed, newest.transferred, newest.reloaded, newest.generated), counted) AS tokens,
            oldest.time AS first_time, oldest.queries AS first_queries, oldest.hits AS first_hits,
            CAST((oldest.computed, oldest.transferred, oldest.reloaded, oldest.generated), counted) AS first_tokens
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

-- Growth of the engines' counters from one scrape to the next one read, and the seconds between them. Of the first one
-- it is from the start of its period; where queries or hits fell, all began again at 0. Tokens that an engine does not
-- count are NULL.
CREATE VIEW {database}.engine_hits_series AS
SELECT *
FROM {database}.engine_hits_windows({range}, seconds = {finest});
