-- Recomputes occupancy_1m and occupancy_1h for the given periods; safe to run at any time and as often as you like.
-- periods: starts of minutes or hours; from: the first, to: the end of the last (exclusive).
INSERT INTO {database}.occupancy_{grain}
(
    window, model, replica, dp_rank, medium, group_idx, block_size, entries, blocks, tokens,
    covered_blocks, capacity_blocks, store_only, at_least, entries_max, blocks_max, tokens_max, trust,
    trust_since, windows, version
)
SELECT
    {start}(fine.window) AS window,
    fine.model,
    fine.replica,
    fine.dp_rank,
    fine.medium,
    fine.group_idx,
    fine.block_size,
    argMax(fine.entries, fine.window) AS entries,
    argMax(fine.blocks, fine.window) AS blocks,
    argMax(fine.tokens, fine.window) AS tokens,
    argMax(fine.covered_blocks, fine.window) AS covered_blocks,
    argMax(fine.capacity_blocks, fine.window) AS capacity_blocks,
    argMax(fine.store_only, fine.window) AS store_only,
    argMax(fine.at_least, fine.window) AS at_least,
    max(fine.entries{peak}) AS entries_max,
    max(fine.blocks{peak}) AS blocks_max,
    max(fine.tokens{peak}) AS tokens_max,
    max(fine.trust) AS trust,
    argMax(fine.trust_since, (fine.trust, fine.window)) AS trust_since,
    {windows} AS windows,
    {version:UInt64} AS version
FROM {database}.occupancy_{finer} AS fine FINAL
WHERE fine.window >= {from:DateTime('UTC')}
    AND fine.window < {to:DateTime('UTC')}
    AND toStartOfHour(fine.window) >= toStartOfHour({from:DateTime('UTC')})
    AND toStartOfHour(fine.window) < {to:DateTime('UTC')}
    AND has({periods:Array(DateTime('UTC'))}, {start}(fine.window))
GROUP BY window, fine.model, fine.replica, fine.dp_rank, fine.medium, fine.group_idx, fine.block_size
