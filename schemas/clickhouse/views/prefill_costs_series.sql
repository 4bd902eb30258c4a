-- Tokens, GPU-seconds and costs for each point of `step` seconds: `lost` ones were computed again, by cause; `saved`
-- ones were found on the GPU or came from a lower tier. Causes are as in hit_potential, but
-- for `at_receivers`. What was found is by the engine's own counters, of which the tenant is the replica's latest. With
-- GPU-seconds and cost at the rate of their day: measured over that day and the day before, else assumed from the
-- settings in force when the window began. NULL: not known.
CREATE VIEW {database}.prefill_costs_series AS
SELECT
    tokens_of.time AS time,
    tokens_of.width AS width,
    ifNull(replicas.tenant, '') AS tenant,
    tokens_of.model AS model,
    tokens_of.replica AS replica,
    CAST(tokens_of.kind, 'Enum8(\'lost\' = 1, \'saved\' = 2)') AS kind,
    tokens_of.cause AS cause,
    tokens_of.tokens AS tokens,
    tokens * coalesce(
        days.busy_seconds / replicas.ranks / days.tokens,
        1 / settings.prefill_tokens_per_second
    ) * settings.gpus_per_replica AS gpu_seconds,
    gpu_seconds / 3600 * settings.gpu_hour_price AS cost,
    ifNull(settings.currency, '') AS currency,
    CAST(
        multiIf(
            isNull(settings.gpus_per_replica)
                OR (isNull(days.tokens) AND isNull(settings.prefill_tokens_per_second)), 'unknown',
            isNotNull(days.tokens), 'measured',
            'assumed'
        ),
        'Enum8(\'measured\' = 1, \'assumed\' = 2, \'unknown\' = 3)'
    ) AS rate_basis,
    tokens_of.sampled_one_in AS sampled_one_in,
    tokens_of.trust AS trust
FROM
(
    SELECT
        time, toUInt32(width) AS width, day, epoch, hash_domain, model, replica, sampled_one_in, trust,
        one.1 AS kind, one.2 AS cause, toInt64(one.3) AS tokens
    FROM
    (
        SELECT *, max(of_group) OVER (PARTITION BY hash_domain, model, replica) AS of_largest
        FROM
        (
            SELECT
                time,
                width,
                toDate(window) AS day,
                arrayCount(change -> change.1 = model AND change.2 <= window, (
                    SELECT groupArray((model, since))
                    FROM {database}.prefill_epochs({range})
                    WHERE epoch > 0
                )) AS epoch,
                hash_domain,
                model,
                replica,
                group_idx,
                sum(promoted_tokens) AS promoted,
                sum(routable_peer_tokens) AS peer,
                sum(at_receivers_tokens) AS at_receivers,
                sum(peer_and_evicted_tokens) AS peer_and_evicted,
                sum(evicted_tokens) AS evicted,
                sum(keepable_elsewhere_tokens) AS evicted_elsewhere,
                sum(cleared_tokens) AS cleared,
                max(sampled_one_in) AS sampled_one_in,
                max(trust) AS trust,
                -- The group that filled most in the range, as in hit_potential; of equal ones the first.
                (sum(sum(filled_tokens)) OVER (PARTITION BY hash_domain, model, replica, group_idx), -toInt32(group_idx))
                    AS of_group
            FROM {database}.fills_series({range}, step = {step:UInt32})
            GROUP BY time, width, day, epoch, hash_domain, model, replica, group_idx
        )
    )
    ARRAY JOIN [
        ('lost', 'peer', peer),
        ('lost', 'at_receivers', at_receivers),
        ('lost', 'peer_and_evicted', peer_and_evicted),
        ('lost', 'evicted', evicted),
        ('lost', 'evicted_elsewhere', evicted_elsewhere),
        ('lost', 'cleared', cleared),
        ('saved', 'lower_tier', promoted)
    ] AS one
    WHERE of_group = of_largest
    UNION ALL
    SELECT
        toDateTime(intDiv(toUnixTimestamp(scrapes.time), width) * width, 'UTC') AS time,
        assumeNotNull((
            SELECT toUInt32(intDiv({step:UInt32} + seconds - 1, seconds) * seconds)
            FROM {database}.finest({range})
        )) AS width,
        toDate(scrapes.time) AS day,
        arrayCount(change -> change.1 = model AND change.2 <= scrapes.time, (
            SELECT groupArray((model, since))
            FROM {database}.prefill_epochs({range})
            WHERE epoch > 0
        )) AS epoch,
        '' AS hash_domain,
        model,
        replica,
        1 AS sampled_one_in,
        CAST('complete', 'Enum8(\'complete\' = 1, \'partial\' = 2, \'degraded\' = 3)') AS trust,
        'saved' AS kind,
        'gpu' AS cause,
        sum(hit) AS tokens
    FROM {database}.engine_hits_series({range}) AS scrapes
    GROUP BY time, width, day, epoch, model, replica
) AS tokens_of
LEFT JOIN
(
    -- What has no hash domain is of the latest one.
    SELECT tenant, model, replica, ranks, arrayJoin(if(latest, [hash_domain, ''], [hash_domain])) AS domain
    FROM {database}.prefill_replicas({range})
) AS replicas
    ON replicas.domain = tokens_of.hash_domain
    AND replicas.model = tokens_of.model AND replicas.replica = tokens_of.replica
LEFT JOIN
(
    SELECT model, replica, day, sum(tokens) AS tokens, sum(least(seconds, observed_seconds)) AS busy_seconds
    FROM
    (
        SELECT
            model, replica, dp_rank, day,
            sum(tokens) AS tokens, sum(seconds) AS seconds, sum(observed_seconds) AS observed_seconds
        FROM {database}.prefill_hours({range})
        ARRAY JOIN [toDate(window), toDate(window) + 1] AS day
        GROUP BY model, replica, dp_rank, day
    ) AS of_ranks
    GROUP BY model, replica, day
    HAVING tokens > 0 AND busy_seconds > 0
) AS days ON days.model = tokens_of.model AND days.replica = tokens_of.replica AND days.day = tokens_of.day
LEFT JOIN
(
    SELECT model, epoch, prefill_tokens_per_second, gpus_per_replica, gpu_hour_price, currency
    FROM {database}.prefill_epochs({range})
) AS settings ON settings.model = tokens_of.model AND settings.epoch = tokens_of.epoch
SETTINGS join_use_nulls = 1
