-- Reading the ten-second tables: only the winning version of a row, and both bounds on the sort key, without which
-- FINAL reads every granule. Both ends are included.

CREATE VIEW IF NOT EXISTS {database}.occupancy AS
SELECT *
FROM {database}.occupancy_10s FINAL
WHERE window >= {from:DateTime('UTC')}
    AND window <= {to:DateTime('UTC')}
    AND toStartOfHour(window) >= toStartOfHour({from:DateTime('UTC')})
    AND toStartOfHour(window) <= {to:DateTime('UTC')};

CREATE VIEW IF NOT EXISTS {database}.flow AS
SELECT *
FROM {database}.flow_10s FINAL
WHERE window >= {from:DateTime('UTC')}
    AND window <= {to:DateTime('UTC')}
    AND toStartOfHour(window) >= toStartOfHour({from:DateTime('UTC')})
    AND toStartOfHour(window) <= {to:DateTime('UTC')};

CREATE VIEW IF NOT EXISTS {database}.stream_health AS
SELECT *
FROM {database}.stream_health_10s FINAL
WHERE window >= {from:DateTime('UTC')}
    AND window <= {to:DateTime('UTC')}
    AND toStartOfHour(window) >= toStartOfHour({from:DateTime('UTC')})
    AND toStartOfHour(window) <= {to:DateTime('UTC')};

-- Sources with what is known of their hashes: one shard's match is proof, so it outweighs the shards that miss one.
CREATE VIEW IF NOT EXISTS {database}.source_hashes AS
SELECT
    s.model AS model,
    s.replica AS replica,
    s.dp_rank AS dp_rank,
    s.incarnation AS incarnation,
    s.hash_domain AS hash_domain,
    s.closed_at AS closed_at,
    h.alike AS alike,
    h.hash_groups AS hash_groups,
    h.doubtful_shards AS doubtful_shards,
    multiIf(h.alike > 0, 'alike', h.doubtful_shards > 0, 'alone', 'not known') AS hashes
FROM
(
    SELECT model, replica, dp_rank, incarnation, hash_domain, closed_at
    FROM {database}.sources FINAL
    ORDER BY incarnation DESC
    LIMIT 1 BY model, replica, dp_rank
) AS s
LEFT JOIN
(
    SELECT
        hash_domain,
        replica,
        dp_rank,
        incarnation,
        max(alike) AS alike,
        groupUniqArray(hash_group) AS hash_groups,
        countIf(alone) AS doubtful_shards
    FROM {database}.hash_groups FINAL
    GROUP BY hash_domain, replica, dp_rank, incarnation
) AS h USING (hash_domain, replica, dp_rank, incarnation);

CREATE VIEW IF NOT EXISTS {database}.fills AS
SELECT *
FROM {database}.fills_10s FINAL
WHERE window >= {from:DateTime('UTC')}
    AND window <= {to:DateTime('UTC')}
    AND toStartOfHour(window) >= toStartOfHour({from:DateTime('UTC')})
    AND toStartOfHour(window) <= {to:DateTime('UTC')};

CREATE VIEW IF NOT EXISTS {database}.redundancy AS
SELECT *
FROM {database}.redundancy_10s FINAL
WHERE window >= {from:DateTime('UTC')}
    AND window <= {to:DateTime('UTC')}
    AND toStartOfHour(window) >= toStartOfHour({from:DateTime('UTC')})
    AND toStartOfHour(window) <= {to:DateTime('UTC')};

CREATE VIEW IF NOT EXISTS {database}.capacity_curve AS
SELECT *
FROM {database}.capacity_curve_10s FINAL
WHERE window >= {from:DateTime('UTC')}
    AND window <= {to:DateTime('UTC')}
    AND toStartOfHour(window) >= toStartOfHour({from:DateTime('UTC')})
    AND toStartOfHour(window) <= {to:DateTime('UTC')};

-- Per replica: prefill work done, what of it had been done before and who could have saved it, and the hit rates
-- behind it. Where an engine keeps several KV-cache groups, those of the group that filled most tokens: the others
-- hold the same tokens once more.
CREATE VIEW IF NOT EXISTS {database}.hit_potential AS
SELECT
    fills.model AS model,
    fills.replica AS replica,
    fills.hash_domain AS hash_domain,
    filled_blocks,
    filled_tokens,
    promoted_tokens,
    peer_tokens,
    peer_and_evicted_tokens,
    evicted_tokens,
    evicted_elsewhere_tokens,
    cleared_tokens,
    cold_tokens,
    unknown_tokens,
    peer_tokens + peer_and_evicted_tokens + evicted_tokens + evicted_elsewhere_tokens + cleared_tokens
        AS avoidable_tokens,
    (peer_tokens + peer_and_evicted_tokens) / nullIf(filled_tokens, 0) AS routing_share,
    (evicted_tokens + evicted_elsewhere_tokens + peer_and_evicted_tokens) / nullIf(filled_tokens, 0) AS capacity_share,
    peer_and_evicted_tokens / nullIf(filled_tokens, 0) AS routing_and_capacity_share,
    cleared_tokens / nullIf(filled_tokens, 0) AS warm_up_share,
    promoted_tokens / nullIf(filled_tokens, 0) AS promoted_share,
    cold_tokens / nullIf(filled_tokens, 0) AS cold_share,
    unknown_tokens / nullIf(filled_tokens, 0) AS unknown_share,
    engine.queried AS queried_tokens,
    engine.hit AS hit_tokens,
    hit_tokens / nullIf(queried_tokens, 0) AS actual_hit_rate,
    least(queried_tokens, hit_tokens + evicted_tokens + peer_and_evicted_tokens + cleared_tokens)
        / nullIf(queried_tokens, 0) AS own_ideal_hit_rate,
    least(queried_tokens, hit_tokens + avoidable_tokens) / nullIf(queried_tokens, 0) AS ideal_hit_rate,
    fills.sampled_one_in AS sampled_one_in,
    fills.trust AS trust
FROM
(
    SELECT
        hash_domain,
        model,
        replica,
        group_idx,
        sum(filled_blocks) AS filled_blocks,
        sum(filled_tokens) AS filled_tokens,
        sum(promoted_tokens) AS promoted_tokens,
        sum(peer_tokens) AS peer_tokens,
        sum(peer_and_evicted_tokens) AS peer_and_evicted_tokens,
        sum(evicted_tokens) AS evicted_tokens,
        sum(evicted_elsewhere_tokens) AS evicted_elsewhere_tokens,
        sum(cleared_tokens) AS cleared_tokens,
        sum(cold_tokens) AS cold_tokens,
        sum(unknown_tokens) AS unknown_tokens,
        sum(reannounced_tokens) AS reannounced_tokens,
        max(sampled_one_in) AS sampled_one_in,
        max(trust) AS trust
    FROM {database}.fills_10s FINAL
    WHERE window >= {from:DateTime('UTC')}
        AND window <= {to:DateTime('UTC')}
        AND toStartOfHour(window) >= toStartOfHour({from:DateTime('UTC')})
        AND toStartOfHour(window) <= {to:DateTime('UTC')}
    GROUP BY hash_domain, model, replica, group_idx
    ORDER BY filled_tokens DESC
    LIMIT 1 BY hash_domain, model, replica
) AS fills
LEFT JOIN
(
    SELECT
        model,
        replica,
        sum(queries - if(queries < queries_before, 0, queries_before)) AS queried,
        sum(hits - if(queries < queries_before, 0, hits_before)) AS hit
    FROM
    (
        SELECT
            model,
            replica,
            time,
            toInt64(prefix_cache_queries) AS queries,
            toInt64(prefix_cache_hits) AS hits,
            lagInFrame(queries) OVER scrapes AS queries_before,
            lagInFrame(hits) OVER scrapes AS hits_before
        FROM {database}.engine_counters FINAL
        WHERE time >= {from:DateTime('UTC')} - INTERVAL 1 MINUTE
            AND time < {to:DateTime('UTC')} + INTERVAL 10 SECOND
            AND toStartOfHour(time) >= toStartOfHour({from:DateTime('UTC')} - INTERVAL 1 MINUTE)
            AND toStartOfHour(time) <= {to:DateTime('UTC')} + INTERVAL 10 SECOND
            AND prefix_cache_queries IS NOT NULL
            AND prefix_cache_hits IS NOT NULL
        WINDOW scrapes AS (PARTITION BY model, replica, dp_rank ORDER BY time ROWS BETWEEN 1 PRECEDING AND CURRENT ROW)
    )
    WHERE time >= {from:DateTime('UTC')} AND isNotNull(queries_before)
    GROUP BY model, replica
) AS engine ON engine.model = fills.model AND engine.replica = fills.replica
SETTINGS join_use_nulls = 1;

-- Per replica: with so much more cache on each of its ranks, at least so much of the fills would have been hits.
-- Bytes are 0 where the settings do not say `kv_bytes_per_token` of the model. The group as in hit_potential.
CREATE VIEW IF NOT EXISTS {database}.capacity_gain AS
SELECT
    hash_domain,
    model,
    replica,
    toUInt64(exp2(exponent - 1)) AS extra_tokens,
    extra_tokens * kv_bytes_per_token AS extra_bytes,
    saved AS saved_tokens,
    filled_tokens,
    saved_tokens / nullIf(filled_tokens, 0) AS saved_share,
    sampled_one_in,
    trust
FROM
(
    SELECT
        fills.hash_domain AS hash_domain,
        fills.model AS model,
        fills.replica AS replica,
        fills.filled_tokens AS filled_tokens,
        fills.sampled_one_in AS sampled_one_in,
        fills.trust AS trust,
        arrayCumSum(curve.needed) AS cumulated
    FROM
    (
        SELECT
            hash_domain,
            model,
            replica,
            group_idx,
            sum(filled_tokens) AS filled_tokens,
            max(sampled_one_in) AS sampled_one_in,
            max(trust) AS trust
        FROM {database}.fills_10s FINAL
        WHERE window >= {from:DateTime('UTC')}
            AND window <= {to:DateTime('UTC')}
            AND toStartOfHour(window) >= toStartOfHour({from:DateTime('UTC')})
            AND toStartOfHour(window) <= {to:DateTime('UTC')}
        GROUP BY hash_domain, model, replica, group_idx
        ORDER BY filled_tokens DESC
        LIMIT 1 BY hash_domain, model, replica
    ) AS fills
    INNER JOIN
    (
        SELECT
            hash_domain,
            replica,
            group_idx,
            sumForEach(needed_hist) AS needed
        FROM {database}.capacity_curve_10s FINAL
        WHERE window >= {from:DateTime('UTC')}
            AND window <= {to:DateTime('UTC')}
            AND toStartOfHour(window) >= toStartOfHour({from:DateTime('UTC')})
            AND toStartOfHour(window) <= {to:DateTime('UTC')}
        GROUP BY hash_domain, replica, group_idx
    ) AS curve
        ON curve.hash_domain = fills.hash_domain AND curve.replica = fills.replica
        AND curve.group_idx = fills.group_idx
) AS cumulated
ARRAY JOIN cumulated AS saved, arrayEnumerate(cumulated) AS exponent
LEFT JOIN
(
    SELECT model AS name, kv_bytes_per_token
    FROM {database}.models FINAL
) AS models ON models.name = cumulated.model;

-- Per prefix: the most that was held several times over at the end of a window, and all that was filled again.
CREATE VIEW IF NOT EXISTS {database}.hot_prefixes AS
SELECT
    hash_domain,
    model,
    group_idx,
    lora,
    leftPad(lower(hex(prefix)), 16, '0') AS first_block,
    max(depth) AS depth_blocks,
    max(most_owners) AS owners,
    max(shared) AS shared_tokens,
    max(duplicated) AS duplicated_tokens,
    sum(refilled) AS refilled_tokens,
    sum(missing) AS refilled_tokens_missing,
    max(one_in) AS sampled_one_in,
    max(worst_trust) AS trust
FROM
(
    SELECT
        hash_domain,
        model,
        group_idx,
        lora,
        prefix,
        max(depth_blocks) AS depth,
        max(owners) AS most_owners,
        sum(shared_tokens) AS shared,
        sum(duplicated_tokens) AS duplicated,
        sum(refilled_tokens) AS refilled,
        sum(refilled_tokens_missing) AS missing,
        max(sampled_one_in) AS one_in,
        max(trust) AS worst_trust
    FROM {database}.hot_prefixes_10s FINAL
    WHERE window >= {from:DateTime('UTC')}
        AND window <= {to:DateTime('UTC')}
        AND toStartOfHour(window) >= toStartOfHour({from:DateTime('UTC')})
        AND toStartOfHour(window) <= {to:DateTime('UTC')}
    GROUP BY hash_domain, model, group_idx, lora, prefix, window
)
GROUP BY hash_domain, model, group_idx, lora, prefix;
