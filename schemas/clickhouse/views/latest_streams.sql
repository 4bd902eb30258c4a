-- Streams with their trust when their newest rows came, and the `end` of these. Where no stream has ten-second rows of
-- the last half hour of the range (`exact`), it is that of the newest window of `seconds`: at the latest then, and before
-- that half hour, unless its ten-second rows are too old to be kept.
CREATE VIEW {database}.latest_streams AS
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
    FROM {database}.stream_health(from = {to} - INTERVAL 30 MINUTE, to = {to})
    UNION ALL
    SELECT
        model, replica, dp_rank, trust, false AS exact, window,
        if(
            {to} - INTERVAL 30 MINUTE > now() - INTERVAL 7 DAY,
            least(window + width, {to} - INTERVAL 30 MINUTE),
            window + width
        ) AS end
    FROM {database}.stream_health_windows({range}, step = 10, seconds = {seconds:UInt32})
) AS part
GROUP BY model, replica, dp_rank
