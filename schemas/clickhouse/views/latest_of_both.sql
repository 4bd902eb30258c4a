-- latest_streams of a range and, `earlier`, of the one before it, which begins at `before` (of that not `exact`). What
-- is newest of each kind of rows is found first: comparing tuples for each row takes twice as long.
CREATE VIEW {database}.latest_of_both AS
WITH
    {before:DateTime('UTC')} AS past_since,
    {from} AS now_since,
    {to} AS now_until,
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
            -- for 1m, 1h
            SELECT
                model, replica, dp_rank, window, {length} AS width, trust,
                2 * (now_seconds = {length} AND window >= {start}(now_since))
                    + 4 * (past_seconds = {length} AND window < now_since) AS ranges
            FROM {database}.stream_health_{grain} FINAL
            WHERE (now_seconds = {length} OR past_seconds = {length})
                AND window >= {start}(if(past_seconds = {length}, past_since, now_since))
                AND window <= if(now_seconds = {length}, now_until, now_since - INTERVAL 1 SECOND)
                AND {slice}(window) >= {slice}(if(past_seconds = {length}, past_since, now_since))
                AND {slice}(window) <= if(now_seconds = {length}, now_until, now_since - INTERVAL 1 SECOND)
            -- end
        ) AS rows
        GROUP BY model, replica, dp_rank, width, ranges
    )
    ARRAY JOIN arrayFilter(one -> bitTest(ranges, one), [0, 1, 2]) AS range
) AS part
GROUP BY earlier, model, replica, dp_rank
