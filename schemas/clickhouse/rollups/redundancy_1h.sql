-- Recomputes redundancy_1h for the given periods; safe to run at any time and as often as you like.
-- periods: starts of hours; from: the first, to: the end of the last (exclusive).
INSERT INTO {database}.redundancy_1h
(
    window, hash_domain, model, medium, group_idx, owners_1, owners_2, owners_3, owners_4_7, owners_8_up,
    unique_tokens, physical_tokens, sampled_one_in, trust, windows, version
)
SELECT
    toStartOfHour(fine.window) AS window,
    fine.hash_domain,
    fine.model,
    fine.medium,
    fine.group_idx,
    argMax(fine.owners_1, fine.window) AS owners_1,
    argMax(fine.owners_2, fine.window) AS owners_2,
    argMax(fine.owners_3, fine.window) AS owners_3,
    argMax(fine.owners_4_7, fine.window) AS owners_4_7,
    argMax(fine.owners_8_up, fine.window) AS owners_8_up,
    argMax(fine.unique_tokens, fine.window) AS unique_tokens,
    argMax(fine.physical_tokens, fine.window) AS physical_tokens,
    argMax(fine.sampled_one_in, fine.window) AS sampled_one_in,
    max(fine.trust) AS trust,
    sum(fine.windows) AS windows,
    {version:UInt64} AS version
FROM {database}.redundancy_1m AS fine FINAL
WHERE fine.window >= {from:DateTime('UTC')}
    AND fine.window < {to:DateTime('UTC')}
    AND toStartOfHour(fine.window) >= toStartOfHour({from:DateTime('UTC')})
    AND toStartOfHour(fine.window) < {to:DateTime('UTC')}
    AND has({periods:Array(DateTime('UTC'))}, toStartOfHour(fine.window))
GROUP BY window, fine.hash_domain, fine.model, fine.medium, fine.group_idx
