-- Recomputes fills_1m and fills_1h for the given periods; safe to run at any time and as often as you like.
-- periods: starts of minutes or hours; from: the first, to: the end of the last (exclusive).
INSERT INTO {database}.fills_{grain}
(
    window, hash_domain, model, replica, dp_rank, group_idx, filled_blocks, filled_tokens,
    promoted_blocks, promoted_tokens, transferred_blocks, transferred_tokens, transferred_again_tokens,
    generated_blocks, generated_tokens,
    peer_blocks, peer_tokens, peer_at_receivers_tokens, peer_and_evicted_blocks, peer_and_evicted_tokens,
    evicted_blocks, evicted_tokens, evicted_elsewhere_blocks, evicted_elsewhere_tokens,
    evicted_at_receivers_tokens, cleared_blocks, cleared_tokens, cold_blocks, cold_tokens, unknown_blocks,
    unknown_tokens, reannounced_blocks, reannounced_tokens, regret_hist, sampled_one_in, trust, windows,
    version
)
SELECT
    {start}(fine.window) AS window,
    fine.hash_domain,
    fine.model,
    fine.replica,
    fine.dp_rank,
    fine.group_idx,
    sum(fine.filled_blocks) AS filled_blocks,
    sum(fine.filled_tokens) AS filled_tokens,
    sum(fine.promoted_blocks) AS promoted_blocks,
    sum(fine.promoted_tokens) AS promoted_tokens,
    sum(fine.transferred_blocks) AS transferred_blocks,
    sum(fine.transferred_tokens) AS transferred_tokens,
    sum(fine.transferred_again_tokens) AS transferred_again_tokens,
    sum(fine.generated_blocks) AS generated_blocks,
    sum(fine.generated_tokens) AS generated_tokens,
    sum(fine.peer_blocks) AS peer_blocks,
    sum(fine.peer_tokens) AS peer_tokens,
    sum(fine.peer_at_receivers_tokens) AS peer_at_receivers_tokens,
    sum(fine.peer_and_evicted_blocks) AS peer_and_evicted_blocks,
    sum(fine.peer_and_evicted_tokens) AS peer_and_evicted_tokens,
    sum(fine.evicted_blocks) AS evicted_blocks,
    sum(fine.evicted_tokens) AS evicted_tokens,
    sum(fine.evicted_elsewhere_blocks) AS evicted_elsewhere_blocks,
    sum(fine.evicted_elsewhere_tokens) AS evicted_elsewhere_tokens,
    sum(fine.evicted_at_receivers_tokens) AS evicted_at_receivers_tokens,
    sum(fine.cleared_blocks) AS cleared_blocks,
    sum(fine.cleared_tokens) AS cleared_tokens,
    sum(fine.cold_blocks) AS cold_blocks,
    sum(fine.cold_tokens) AS cold_tokens,
    sum(fine.unknown_blocks) AS unknown_blocks,
    sum(fine.unknown_tokens) AS unknown_tokens,
    sum(fine.reannounced_blocks) AS reannounced_blocks,
    sum(fine.reannounced_tokens) AS reannounced_tokens,
    sumForEach(fine.regret_hist) AS regret_hist,
    max(fine.sampled_one_in) AS sampled_one_in,
    max(fine.trust) AS trust,
    {windows} AS windows,
    {version:UInt64} AS version
FROM {database}.fills_{finer} AS fine FINAL
WHERE fine.window >= {from:DateTime('UTC')}
    AND fine.window < {to:DateTime('UTC')}
    AND toStartOfHour(fine.window) >= toStartOfHour({from:DateTime('UTC')})
    AND toStartOfHour(fine.window) < {to:DateTime('UTC')}
    AND has({periods:Array(DateTime('UTC'))}, {start}(fine.window))
GROUP BY window, fine.hash_domain, fine.model, fine.replica, fine.dp_rank, fine.group_idx
