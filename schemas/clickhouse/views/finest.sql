-- Which table serves a range, so that a panel costs about the same whether it shows an hour or a year, ten replicas or
-- thousands. It is looked up once for a statement, by the views `*_series`, and handed to the views `*_windows`.
-- Length of the windows to read for a range: at most 100,000 windows of sources from the ten-second tables (which
-- hold up to eight rows for each, one a shard), 400,000 from the minute tables, and never more than two hours and a day.
-- Tables are sorted by hour first, and an hour is read whole: a shorter range than half of one costs no less. A range
-- that begins before what a table keeps is read from the next one; a TTL that was changed is not known here.
CREATE VIEW {database}.finest AS
SELECT
    dateDiff('second', {from}, {to}) AS length,
    uniq(replica, dp_rank) AS sources,
    multiIf(
        length <= 7200 AND sources * greatest(length, 1800) <= 10 * 100000
            AND {from} >= now() - INTERVAL 7 DAY, 10,
        length <= 86400 AND sources * length <= 60 * 400000
            AND {from} >= now() - INTERVAL 60 DAY, 60,
        3600
    ) AS seconds
FROM {database}.sources FINAL
WHERE opened_at <= {to}
    AND (closed_at IS NULL OR closed_at >= {from})
