-- GPU-seconds that one more token of a prompt takes on each replica, `measured`, `assumed` or `unknown`. Its
-- engine measures over the days of a range and the day before them; assumed are the settings in force at the end of the
-- range.
CREATE VIEW {database}.prefill_rates AS
SELECT
    replicas.tenant AS tenant,
    replicas.model AS model,
    replicas.replica AS replica,
    replicas.ranks AS dp_ranks,
    measured.tokens AS measured_tokens,
    measured.busy_seconds AS measured_seconds,
    coalesce(
        measured.busy_seconds / dp_ranks / measured.tokens,
        1 / nullIf(settings.prefill_tokens_per_second, 0)
    ) AS replica_seconds_per_token,
    replica_seconds_per_token * settings.gpus_per_replica AS gpu_seconds_per_token,
    CAST(
        multiIf(isNull(gpu_seconds_per_token), 'unknown', isNotNull(measured.tokens), 'measured', 'assumed'),
        'Enum8(\'measured\' = 1, \'assumed\' = 2, \'unknown\' = 3)'
    ) AS rate_basis,
    settings.gpus_per_replica AS gpus,
    settings.gpu_hour_price AS gpu_hour_price,
    ifNull(settings.currency, '') AS currency
FROM
(
    SELECT DISTINCT tenant, model, replica, ranks
    FROM {database}.prefill_replicas({range})
) AS replicas
LEFT JOIN
(
    SELECT model, replica, sum(tokens) AS tokens, sum(least(seconds, observed_seconds)) AS busy_seconds
    FROM
    (
        SELECT
            model, replica, dp_rank,
            sum(tokens) AS tokens, sum(seconds) AS seconds, sum(observed_seconds) AS observed_seconds
        FROM {database}.prefill_hours({range})
        GROUP BY model, replica, dp_rank
    ) AS of_ranks
    GROUP BY model, replica
    HAVING tokens > 0 AND busy_seconds > 0
) AS measured ON measured.model = replicas.model AND measured.replica = replicas.replica
LEFT JOIN
(
    SELECT model, prefill_tokens_per_second, gpus_per_replica, gpu_hour_price, currency
    FROM {database}.prefill_epochs({range})
    WHERE last
) AS settings ON settings.model = replicas.model
SETTINGS join_use_nulls = 1
