-- What prefill costs: how long a token takes, by the engines' own counters or by the settings, and what that makes of
-- the tokens that were computed in vain and of those that a cache saved. docs/figures.md defines every figure.

ALTER TABLE {database}.engine_counters
    ADD COLUMN IF NOT EXISTS prefill_seconds Nullable(Float64) CODEC(ZSTD(1)) AFTER kv_cache_usage;

ALTER TABLE {database}.engine_counters
    ADD COLUMN IF NOT EXISTS prefill_tokens Nullable(UInt64) CODEC(ZSTD(1)) AFTER prefill_seconds;

CREATE TABLE IF NOT EXISTS {database}.prefill_settings
(
    model LowCardinality(String),
    since DateTime64(3, 'UTC'),
    prefill_tokens_per_second Nullable(Float64),
    gpus_per_replica Nullable(Float64),
    gpu_hour_price Nullable(Float64),
    currency LowCardinality(String),
    version UInt64
)
ENGINE = {engine:ReplacingMergeTree(version)}
ORDER BY (model, since);

-- The first and the last scrape of each hour that tells how long prefill took. A plain materialised view may write
-- them: a scrape never changes, so writing it twice, or late, changes nothing.
CREATE TABLE IF NOT EXISTS {database}.prefill_counters_by_hour
(
    window DateTime('UTC') CODEC(DoubleDelta, ZSTD(1)),
    model LowCardinality(String) CODEC(ZSTD(1)),
    replica LowCardinality(String) CODEC(ZSTD(1)),
    dp_rank UInt16 CODEC(ZSTD(1)),
    first SimpleAggregateFunction(min, Tuple(time DateTime64(3, 'UTC'), tokens Int64, seconds Float64)) CODEC(ZSTD(1)),
    last SimpleAggregateFunction(max, Tuple(time DateTime64(3, 'UTC'), tokens Int64, seconds Float64)) CODEC(ZSTD(1))
)
ENGINE = {engine:AggregatingMergeTree()}
PARTITION BY toYYYYMM(window)
ORDER BY (toStartOfMonth(window), model, replica, dp_rank, window)
TTL window + INTERVAL 2 YEAR DELETE
SETTINGS ttl_only_drop_parts = 1;

-- Writes prefill_counters_by_hour. Engines that do not count the tokens that they computed count those that they
-- looked up and found.
CREATE MATERIALIZED VIEW IF NOT EXISTS {database}.engine_counters_to_prefill TO {database}.prefill_counters_by_hour AS
SELECT
    toStartOfHour(toDateTime(time)) AS window, model, replica, dp_rank,
    min((time, tokens, seconds)) AS first,
    max((time, tokens, seconds)) AS last
FROM
(
    SELECT
        time, model, replica, dp_rank,
        assumeNotNull(prefill_seconds) AS seconds,
        assumeNotNull(coalesce(
            toInt64(prefill_tokens),
            toInt64(prefix_cache_queries) - toInt64(prefix_cache_hits) - toInt64(ifNull(external_hits, 0))
        )) AS tokens
    FROM {database}.engine_counters
    WHERE prefill_seconds IS NOT NULL
        AND (prefill_tokens IS NOT NULL OR (prefix_cache_queries IS NOT NULL AND prefix_cache_hits IS NOT NULL))
)
GROUP BY window, model, replica, dp_rank;

-- What each rank computed in each hour of the days of a range and of the day before them, and how long it took; of the
-- first hour from its first scrape on. A counter that fell began anew at 0.
CREATE VIEW IF NOT EXISTS {database}.prefill_hours AS
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
        WHERE window >= toStartOfDay({from:DateTime('UTC')}) - INTERVAL 25 HOUR
            AND window < toStartOfDay({to:DateTime('UTC')}) + INTERVAL 1 DAY
            AND toStartOfMonth(window) >= toStartOfMonth(toStartOfDay({from:DateTime('UTC')}) - INTERVAL 25 HOUR)
            AND toStartOfMonth(window) <= {to:DateTime('UTC')}
    )
    WINDOW hours AS (PARTITION BY model, replica, dp_rank ORDER BY window ROWS BETWEEN 1 PRECEDING AND CURRENT ROW)
)
WHERE window >= toStartOfDay({from:DateTime('UTC')}) - INTERVAL 1 DAY;

-- What the settings say of prefill in a range, by model: `epoch` 0 is in force at its start, and each change begins
-- another one. The first settings of a model also hold for all time before.
CREATE VIEW IF NOT EXISTS {database}.prefill_epochs AS
SELECT
    model,
    toUInt64(number - 1) AS epoch,
    number = length(epochs) AS last,
    one.1 AS since,
    one.2 AS prefill_tokens_per_second,
    one.3 AS gpus_per_replica,
    one.4 AS gpu_hour_price,
    one.5 AS currency
FROM
(
    SELECT
        model,
        arraySort(
            one -> one.1,
            groupArray((since, prefill_tokens_per_second, gpus_per_replica, gpu_hour_price, currency))
        ) AS all,
        arrayFilter(one -> one.1 <= {from:DateTime('UTC')}, all) AS before,
        arrayFilter(one -> one.1 > {from:DateTime('UTC')} AND one.1 <= {to:DateTime('UTC')}, all) AS inside,
        arrayConcat([if(empty(before), all[1], before[-1])], inside) AS epochs
    FROM {database}.prefill_settings FINAL
    GROUP BY model
)
ARRAY JOIN epochs AS one, arrayEnumerate(epochs) AS number;

-- Tenants and replicas that lived in a range, with their ranks.
CREATE VIEW IF NOT EXISTS {database}.prefill_replicas AS
SELECT tenant, hash_domain, model, replica, ranks, latest
FROM
(
    SELECT
        tenant,
        hash_domain,
        model,
        replica,
        groupUniqArrayArray(groupUniqArray(dp_rank)) OVER (PARTITION BY model, replica) AS of_replica,
        length(of_replica) AS ranks,
        row_number() OVER (PARTITION BY model, replica ORDER BY max(opened_at) DESC, hash_domain) = 1 AS latest
    FROM {database}.sources FINAL
    WHERE (closed_at IS NULL OR closed_at >= {from:DateTime('UTC')})
        AND opened_at <= {to:DateTime('UTC')}
    GROUP BY tenant, hash_domain, model, replica
);

-- What computing one more token of a prompt takes on each replica: GPU-seconds over the days of a range and the day
-- before them, `measured` by its engine, else `assumed` from the settings in force at the end of the range, else
-- `unknown`.
CREATE VIEW IF NOT EXISTS {database}.prefill_rates AS
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
    FROM {database}.prefill_replicas(from = {from:DateTime('UTC')}, to = {to:DateTime('UTC')})
) AS replicas
LEFT JOIN
(
    SELECT model, replica, sum(tokens) AS tokens, sum(least(seconds, observed_seconds)) AS busy_seconds
    FROM
    (
        SELECT
            model, replica, dp_rank,
            sum(tokens) AS tokens, sum(seconds) AS seconds, sum(observed_seconds) AS observed_seconds
        FROM {database}.prefill_hours(from = {from:DateTime('UTC')}, to = {to:DateTime('UTC')})
        GROUP BY model, replica, dp_rank
    ) AS of_ranks
    GROUP BY model, replica
    HAVING tokens > 0 AND busy_seconds > 0
) AS measured ON measured.model = replicas.model AND measured.replica = replicas.replica
LEFT JOIN
(
    SELECT model, prefill_tokens_per_second, gpus_per_replica, gpu_hour_price, currency
    FROM {database}.prefill_epochs(from = {from:DateTime('UTC')}, to = {to:DateTime('UTC')})
    WHERE last
) AS settings ON settings.model = replicas.model
SETTINGS join_use_nulls = 1;

-- Tokens by what became of them, for each point of `step` seconds: `lost` ones were computed although they had been
-- before, by cause as in hit_potential; `saved` ones were found on the GPU (by the engine's own counters, of which the
-- tenant is the replica's latest) or came from a lower tier. With GPU-seconds and cost at the rate of their day: measured
-- over that day and the day before, else assumed from the settings in force when the window began. NULL: not known.
CREATE VIEW IF NOT EXISTS {database}.prefill_costs_series AS
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
                    FROM {database}.prefill_epochs(from = {from:DateTime('UTC')}, to = {to:DateTime('UTC')})
                    WHERE epoch > 0
                )) AS epoch,
                hash_domain,
                model,
                replica,
                group_idx,
                sum(promoted_tokens) AS promoted,
                sum(peer_tokens) AS peer,
                sum(peer_and_evicted_tokens) AS peer_and_evicted,
                sum(evicted_tokens) AS evicted,
                sum(evicted_elsewhere_tokens) AS evicted_elsewhere,
                sum(cleared_tokens) AS cleared,
                max(sampled_one_in) AS sampled_one_in,
                max(trust) AS trust,
                -- The group that filled most in the range, as in hit_potential; of equal ones the first.
                (sum(sum(filled_tokens)) OVER (PARTITION BY hash_domain, model, replica, group_idx), -toInt32(group_idx))
                    AS of_group
            FROM {database}.fills_series(
                from = {from:DateTime('UTC')}, to = {to:DateTime('UTC')}, step = {step:UInt32}
            )
            GROUP BY time, width, day, epoch, hash_domain, model, replica, group_idx
        )
    )
    ARRAY JOIN [
        ('lost', 'peer', peer),
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
            FROM {database}.finest(from = {from:DateTime('UTC')}, to = {to:DateTime('UTC')})
        )) AS width,
        toDate(scrapes.time) AS day,
        arrayCount(change -> change.1 = model AND change.2 <= scrapes.time, (
            SELECT groupArray((model, since))
            FROM {database}.prefill_epochs(from = {from:DateTime('UTC')}, to = {to:DateTime('UTC')})
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
    FROM {database}.engine_hits_series(from = {from:DateTime('UTC')}, to = {to:DateTime('UTC')}) AS scrapes
    GROUP BY time, width, day, epoch, model, replica
) AS tokens_of
LEFT JOIN
(
    -- What has no hash domain is of the latest one.
    SELECT tenant, model, replica, ranks, arrayJoin(if(latest, [hash_domain, ''], [hash_domain])) AS domain
    FROM {database}.prefill_replicas(from = {from:DateTime('UTC')}, to = {to:DateTime('UTC')})
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
        FROM {database}.prefill_hours(from = {from:DateTime('UTC')}, to = {to:DateTime('UTC')})
        ARRAY JOIN [toDate(window), toDate(window) + 1] AS day
        GROUP BY model, replica, dp_rank, day
    ) AS of_ranks
    GROUP BY model, replica, day
    HAVING tokens > 0 AND busy_seconds > 0
) AS days ON days.model = tokens_of.model AND days.replica = tokens_of.replica AND days.day = tokens_of.day
LEFT JOIN
(
    SELECT model, epoch, prefill_tokens_per_second, gpus_per_replica, gpu_hour_price, currency
    FROM {database}.prefill_epochs(from = {from:DateTime('UTC')}, to = {to:DateTime('UTC')})
) AS settings ON settings.model = tokens_of.model AND settings.epoch = tokens_of.epoch
SETTINGS join_use_nulls = 1;

-- prefill_costs_series added up, by tenant, model, replica and cause. `gpu_seconds` and `cost` leave out tokens without a
-- rate (`unpriced_tokens`: without a cost), and are NULL where all are; `rate_basis` is the worst of the parts.
CREATE VIEW IF NOT EXISTS {database}.prefill_costs AS
SELECT
    tenant,
    model,
    replica,
    kind,
    cause,
    sum(parts.tokens) AS tokens,
    sum(parts.gpu_seconds) AS gpu_seconds,
    sum(parts.cost) AS cost,
    sumIf(parts.tokens, isNull(parts.gpu_seconds)) AS tokens_without_rate,
    sumIf(parts.tokens, isNull(parts.cost)) AS unpriced_tokens,
    currency,
    if(sum(parts.tokens) = 0, max(parts.rate_basis), maxIf(parts.rate_basis, parts.tokens > 0)) AS rate_basis,
    max(parts.sampled_one_in) AS sampled_one_in,
    max(parts.trust) AS trust
FROM {database}.prefill_costs_series(from = {from:DateTime('UTC')}, to = {to:DateTime('UTC')}, step = 86400) AS parts
GROUP BY tenant, model, replica, kind, cause, currency;
