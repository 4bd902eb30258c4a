-- Of a range and, `earlier`, of the one before it, which begins at `before`, what hit_potential_windows and
-- capacity_gain_windows say of a replica, with the fills read once for both; of the earlier one only what is summed up.
CREATE VIEW {database}.facts_of_both AS
WITH fills.peer + fills.peer_and_evicted + fills.evicted + fills.evicted_elsewhere + fills.cleared AS of_causes
SELECT
    fills.earlier AS earlier,
    fills.hash_domain AS hash_domain,
    fills.model AS model,
    fills.replica AS replica,
    fills.prefill AS prefill_tokens,
    -- As in hit_potential_windows: no more than the engine computed, where all ranks were scraped nearly all the time.
    if(
        isNotNull(engine.computed) AND engine.counted_ranks >= fills.ranks AND engine.counted_seconds >= 0.9 * if(
            fills.earlier, dateDiff('second', {before:DateTime('UTC')}, {from}),
            dateDiff('second', {from}, {to}) + 1
        ), toUInt64(engine.computed), NULL
    ) AS computed_tokens,
    least(of_causes, ifNull(computed_tokens, of_causes)) AS avoidable_tokens,
    least(toUInt64(fills.routable_peer + fills.peer_and_evicted), avoidable_tokens) AS routing_tokens,
    least(fills.evicted + fills.peer_and_evicted, avoidable_tokens) AS evicted_tokens,
    least(fills.cleared, avoidable_tokens) AS cleared_tokens,
    fills.transferred AS claimed_tokens,
    fills.again AS transferred_again_tokens,
    if(isNull(computed_tokens), NULL, engine.transferred) AS transferred_tokens,
    roles.role AS role,
    fills.cold AS cold_tokens,
    fills.unknown AS unknown_tokens,
    -- As in hit_potential_windows.
    if(max((fills.last, fills.hash_domain)) OVER replicas = (fills.last, fills.hash_domain),
        engine.queried, NULL) AS queried_tokens,
    if(isNull(queried_tokens), NULL, engine.hit) AS hit_tokens,
    least(queried_tokens, hit_tokens + sum(avoidable_tokens) OVER replicas) / nullIf(queried_tokens, 0)
        AS ideal_hit_rate,
    fills.one_in AS sampled_one_in,
    fills.worst AS trust,
    if(fills.earlier, [], curve.needed) AS needed,
    if(empty(needed), 0, models.kv_bytes_per_token) AS bytes_per_token,
    cost.rate AS gpu_seconds_per_token,
    if(cost.basis = '', 'unknown', cost.basis) AS rate_basis,
    hashing.hashes = 'alone' AS hashes_alone,
    health.doubt AS doubt,
    room.tokens AS room_tokens,
    history.lost_at AS lost_at,
    history.incomplete_until AS incomplete_until,
    history.unknown_until AS unknown_until
FROM {database}.fills_of_both(
    before = {before:DateTime('UTC')}, {range},
    seconds = {seconds:UInt32}, seconds_before = {seconds_before:UInt32}
) AS fills
LEFT JOIN {database}.engine_hits_of_both(
    before = {before:DateTime('UTC')}, {range},
    seconds = {seconds:UInt32}, seconds_before = {seconds_before:UInt32}
) AS engine ON engine.model = fills.model AND engine.replica = fills.replica AND engine.earlier = fills.earlier
LEFT JOIN {database}.replica_roles AS roles ON roles.model = fills.model AND roles.replica = fills.replica
LEFT JOIN
(
    SELECT hash_domain, replica, group_idx, sumForEach(needed_hist) AS needed
    FROM {database}.capacity_curve_windows({range}, seconds = {seconds:UInt32})
    GROUP BY hash_domain, replica, group_idx
) AS curve
    ON curve.hash_domain = fills.hash_domain AND curve.replica = fills.replica
    AND curve.group_idx = fills.group_idx
LEFT JOIN
(
    SELECT model, toFloat64(kv_bytes_per_token) AS kv_bytes_per_token
    FROM {database}.models FINAL
) AS models ON models.model = fills.model
LEFT JOIN
(
    SELECT model, replica, any(gpu_seconds_per_token) AS rate, any(toString(rate_basis)) AS basis
    FROM {database}.prefill_rates({range})
    GROUP BY model, replica
) AS cost ON cost.model = fills.model AND cost.replica = fills.replica
LEFT JOIN
(
    SELECT DISTINCT hash_domain, replica, hashes
    FROM {database}.source_hashes
    WHERE isNull(closed_at) AND hashes = 'alone'
) AS hashing ON hashing.hash_domain = fills.hash_domain AND hashing.replica = fills.replica
LEFT JOIN
(
    SELECT model, replica, max(state) AS doubt
    FROM
    (
        SELECT
            model,
            replica,
            if(argMax(drift_blocks, window) > 0, 3, toUInt8(argMax(trust, window)) - 1) AS state
        FROM {database}.stream_health_windows({range}, step = 10, seconds = {seconds:UInt32})
        GROUP BY model, replica, dp_rank
    )
    GROUP BY model, replica
) AS health ON health.model = fills.model AND health.replica = fills.replica
LEFT JOIN
(
    SELECT model, replica, max(capacity_blocks * block_size) AS tokens
    FROM {database}.occupancy(from = {to} - INTERVAL 1 MINUTE, to = {to})
    WHERE medium = 'gpu'
    GROUP BY model, replica
) AS room ON room.model = fills.model AND room.replica = fills.replica
LEFT JOIN
(
    SELECT
        model,
        replica,
        max(lost_at) AS lost_at,
        max(incomplete_until) AS incomplete_until,
        max(unknown_until) AS unknown_until
    FROM {database}.lost_history(to = {to})
    GROUP BY model, replica
) AS history ON history.model = fills.model AND history.replica = fills.replica
WINDOW replicas AS (PARTITION BY fills.earlier, fills.model, fills.replica)
SETTINGS join_use_nulls = 0
