-- Recomputes capacity_curve_1m and capacity_curve_1h for the given periods; safe to run at any time and as often as you like.
-- periods: starts of minutes or hours; from: the first, to: the end of the last (exclusive).
INSERT INTO {database}.capacity_curve_{grain}
(
    window, hash_domain, model, replica, dp_rank, group_idx, needed_hist, sampled_one_in, trust, windows,
    version
)
SELECT
    {start}(fine.window) AS window,
    fine.hash_domain,
    fine.model,
    fine.replica,
    fine.dp_rank,
    fine.group_idx,
    sumForEach(fine.needed_hist) AS needed_hist,
    max(fine.sampled_one_in) AS sampled_one_in,
    max(fine.trust) AS trust,
    {windows} AS windows,
    {version:UInt64} AS version
FROM {database}.capacity_curve_{finer} AS fine FINAL
WHERE fine.window >= {from:DateTime('UTC')}
    AND fine.window < {to:DateTime('UTC')}
    AND toStartOfHour(fine.window) >= toStartOfHour({from:DateTime('UTC')})
    AND toStartOfHour(fine.window) < {to:DateTime('UTC')}
    AND has({periods:Array(DateTime('UTC'))}, {start}(fine.window))
GROUP BY window, fine.hash_domain, fine.model, fine.replica, fine.dp_rank, fine.group_idx
