-- hit_potential_series of windows of `seconds`.
CREATE VIEW {database}.hit_potential_windows AS
WITH peer_tokens + peer_and_evicted_tokens + evicted_tokens + evicted_elsewhere_tokens + cleared_tokens AS of_causes
SELECT
    fills.model AS model,
    fills.replica AS replica,
    fills.hash_domain AS hash_domain,
    filled_blocks,
    filled_tokens,
    prefill_tokens,
    promoted_tokens,
    transferred_tokens,
    generated_tokens,
    peer_tokens,
    peer_and_evicted_tokens,
    evicted_tokens,
    evicted_elsewhere_tokens,
    at_receivers_tokens,
    cleared_tokens,
    cold_tokens,
    unknown_tokens,
    if(
        engine.counted_ranks >= fills.ranks
            AND engine.counted_seconds >= 0.9 * (dateDiff('second', {from}, {to}) + 1),
        toUInt64(engine.computed), NULL
    ) AS computed_tokens,
    least(of_causes, ifNull(computed_tokens, of_causes)) AS avoidable_tokens,
    (routable_peer_tokens + peer_and_evicted_tokens) / nullIf(prefill_tokens, 0) AS routing_share,
    (evicted_tokens + keepable_elsewhere_tokens + peer_and_evicted_tokens) / nullIf(prefill_tokens, 0) AS capacity_share,
    peer_and_evicted_tokens / nullIf(prefill_tokens, 0) AS routing_and_capacity_share,
    cleared_tokens / nullIf(prefill_tokens, 0) AS warm_up_share,
    at_receivers_tokens / nullIf(prefill_tokens, 0) AS at_receivers_share,
    promoted_tokens / nullIf(filled_tokens, 0) AS promoted_share,
    transferred_tokens / nullIf(filled_tokens, 0) AS transferred_share,
    generated_tokens / nullIf(filled_tokens, 0) AS generated_share,
    cold_tokens / nullIf(prefill_tokens, 0) AS cold_share,
    unknown_tokens / nullIf(prefill_tokens, 0) AS unknown_share,
    -- An engine counts for all its hash domains: the last one has its counters, and what was avoidable in any of them.
    if(max((last, hash_domain)) OVER replicas = (last, hash_domain), engine.queried, NULL) AS queried_tokens,
    if(isNull(queried_tokens), NULL, engine.hit) AS hit_tokens,
    hit_tokens / nullIf(queried_tokens, 0) AS actual_hit_rate,
    least(queried_tokens, hit_tokens + sum(evicted_tokens + peer_and_evicted_tokens + cleared_tokens) OVER replicas)
        / nullIf(queried_tokens, 0) AS own_ideal_hit_rate,
    least(queried_tokens, hit_tokens + sum(avoidable_tokens) OVER replicas) / nullIf(queried_tokens, 0)
        AS ideal_hit_rate,
    fills.sampled_one_in AS sampled_one_in,
    fills.trust AS trust
FROM
(
    SELECT
        hash_domain,
        model,
        replica,
        group_idx,
        max(window) AS last,
        uniqExact(dp_rank) AS ranks,
        sum(filled_blocks) AS filled_blocks,
        sum(filled_tokens) AS filled_tokens,
        sum(prefill_tokens) AS prefill_tokens,
        sum(promoted_tokens) AS promoted_tokens,
        sum(transferred_tokens) AS transferred_tokens,
        sum(generated_tokens) AS generated_tokens,
        sum(peer_tokens) AS peer_tokens,
        sum(peer_and_evicted_tokens) AS peer_and_evicted_tokens,
        sum(evicted_tokens) AS evicted_tokens,
        sum(evicted_elsewhere_tokens) AS evicted_elsewhere_tokens,
        sum(routable_peer_tokens) AS routable_peer_tokens,
        sum(keepable_elsewhere_tokens) AS keepable_elsewhere_tokens,
        sum(at_receivers_tokens) AS at_receivers_tokens,
        sum(cleared_tokens) AS cleared_tokens,
        sum(cold_tokens) AS cold_tokens,
        sum(unknown_tokens) AS unknown_tokens,
        max(sampled_one_in) AS sampled_one_in,
        max(trust) AS trust
    FROM {database}.fills_windows({range}, step = 10, seconds = {seconds:UInt32})
    GROUP BY hash_domain, model, replica, group_idx
    ORDER BY filled_tokens DESC, group_idx
    LIMIT 1 BY hash_domain, model, replica
) AS fills
LEFT JOIN
(
    SELECT
        model, replica, sum(queried) AS queried, sum(hit) AS hit, sum(computed) AS computed,
        uniqExact(dp_rank) AS counted_ranks, sum(counted_seconds) / counted_ranks AS counted_seconds
    FROM {database}.engine_hits_windows({range}, seconds = {seconds:UInt32})
    GROUP BY model, replica
) AS engine ON engine.model = fills.model AND engine.replica = fills.replica
WINDOW replicas AS (PARTITION BY fills.model, fills.replica)
SETTINGS join_use_nulls = 1;

-- Per replica: prefill work done, the shares of it that had been done before, by who could have saved them, and the hit
-- rates behind it. `prefill_tokens` are those filled, less what came from a lower tier or by transfer and what
-- decoding completed. `avoidable_tokens` are those of the causes, but no more than `computed_tokens`: what the engine
-- counted as computed for prompts, where all ranks were scraped for nine tenths of the range. Where an engine keeps
-- several KV-cache groups, those of the group that filled most tokens (of equal ones the first): the others hold the
-- same tokens once more. Where a replica had several hash domains in the range, its hit rates stand at the last one.
CREATE VIEW {database}.hit_potential AS
SELECT *
FROM {database}.hit_potential_windows({range}, seconds = 10);

-- As without `_series`, from the table that fits the range. What an engine counted between its last scrape that is read
-- and a restart is missing.
CREATE VIEW {database}.hit_potential_series AS
SELECT *
FROM {database}.hit_potential_windows({range}, seconds = {finest});
