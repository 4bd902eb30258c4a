-- What each rank computed in each hour of the days of a range and of the day before them, and how long it took; of the
-- first hour from its first scrape on. A counter that fell began again at 0.
CREATE VIEW {database}.prefill_hours AS
SELECT
    model,
    replica,
    dp_rank,
    window,
    newest.tokens - if(fell, 0, tokens_before) AS tokens,
    newest.seconds - if(fell, 0, seconds_before) AS seconds,
    (toUnixTimestamp64Milli(newest.time) - toUnixTimestamp64Milli(time_before)) / 1000 AS observed_seconds
FROM
(
    SELECT
        model,
        replica,
        dp_rank,
        window,
        newest,
        coalesce(lagInFrame(toNullable(newest.time)) OVER hours, oldest.time) AS time_before,
        coalesce(lagInFrame(toNullable(newest.tokens)) OVER hours, oldest.tokens) AS tokens_before,
        coalesce(lagInFrame(toNullable(newest.seconds)) OVER hours, oldest.seconds) AS seconds_before,
        newest.tokens < tokens_before OR newest.seconds < seconds_before AS fell
    FROM
    (
        -- As in engine_hits_series: `materialize` has FINAL read the whole tuple.
        SELECT model, replica, dp_rank, window, materialize(first) AS oldest, materialize(last) AS newest
        FROM {database}.prefill_counters_by_hour FINAL
        WHERE window >= toStartOfDay({from}) - INTERVAL 25 HOUR
            AND window < toStartOfDay({to}) + INTERVAL 1 DAY
            AND toStartOfMonth(window) >= toStartOfMonth(toStartOfDay({from}) - INTERVAL 25 HOUR)
            AND toStartOfMonth(window) <= {to}
    )
    WINDOW hours AS (PARTITION BY model, replica, dp_rank ORDER BY window ROWS BETWEEN 1 PRECEDING AND CURRENT ROW)
)
WHERE window >= toStartOfDay({from}) - INTERVAL 1 DAY
