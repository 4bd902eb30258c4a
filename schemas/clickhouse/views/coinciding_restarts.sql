-- coinciding_restarts of windows of `seconds`, and of `seconds_from_hour_before` where the hour before the range is
-- read as well.
CREATE VIEW {database}.coinciding_restarts_windows AS
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
                    AND closed_at >= {from} - INTERVAL 1 HOUR
                    AND closed_at <= {to}
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
            FROM {database}.fills_windows({range}, step = 10, seconds = {seconds:UInt32})
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
            from = {from} - INTERVAL 1 HOUR, to = {to}, step = 10,
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
CREATE VIEW {database}.coinciding_restarts AS
SELECT *
FROM {database}.coinciding_restarts_windows(
    {range},
    seconds = {finest},
    seconds_from_hour_before = (
        SELECT seconds
        FROM {database}.finest(from = {from} - INTERVAL 1 HOUR, to = {to})
    )
);
