-- Recomputes flow_1m and flow_1h for the given periods; safe to run at any time and as often as you like.
-- periods: starts of minutes or hours; from: the first, to: the end of the last (exclusive).
INSERT INTO {database}.flow_{grain}
(
    window, model, replica, dp_rank, medium, group_idx, stored_blocks, stored_tokens, filled_blocks,
    removed_blocks, evicted_blocks, evicted_tokens, cleared_blocks, expired_blocks, reannounced_blocks,
    unknown_removed_blocks, lifetime_hist, trust, trust_since, windows, version
)
SELECT
    {start}(fine.window) AS window,
    fine.model,
    fine.replica,
    fine.dp_rank,
    fine.medium,
    fine.group_idx,
    sum(fine.stored_blocks) AS stored_blocks,
    sum(fine.stored_tokens) AS stored_tokens,
    sum(fine.filled_blocks) AS filled_blocks,
    sum(fine.removed_blocks) AS removed_blocks,
    sum(fine.evicted_blocks) AS evicted_blocks,
    sum(fine.evicted_tokens) AS evicted_tokens,
    sum(fine.cleared_blocks) AS cleared_blocks,
    sum(fine.expired_blocks) AS expired_blocks,
    sum(fine.reannounced_blocks) AS reannounced_blocks,
    sum(fine.unknown_removed_blocks) AS unknown_removed_blocks,
    sumForEach(fine.lifetime_hist) AS lifetime_hist,
    max(fine.trust) AS trust,
    argMax(fine.trust_since, (fine.trust, fine.window)) AS trust_since,
    {windows} AS windows,
    {version:UInt64} AS version
FROM {database}.flow_{finer} AS fine FINAL
WHERE fine.window >= {from:DateTime('UTC')}
    AND fine.window < {to:DateTime('UTC')}
    AND toStartOfHour(fine.window) >= toStartOfHour({from:DateTime('UTC')})
    AND toStartOfHour(fine.window) < {to:DateTime('UTC')}
    AND has({periods:Array(DateTime('UTC'))}, {start}(fine.window))
GROUP BY window, fine.model, fine.replica, fine.dp_rank, fine.medium, fine.group_idx
