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
                    AND closed_at >= {from:DateTime('UTC')} - INTERVAL 1 HOUR
                    AND closed_at <= {to:DateTime('UTC')}
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
            FROM {database}.fills_windows(
                from = {from:DateTime('UTC')}, to = {to:DateTime('UTC')}, step = 10, seconds = {seconds:UInt32}
            )
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
            from = {from:DateTime('UTC')} - INTERVAL 1 HOUR, to = {to:DateTime('UTC')}, step = 10,
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
SETTINGS join_use_nulls = 0
