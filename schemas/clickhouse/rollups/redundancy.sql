-- Recomputes redundancy_1m and redundancy_1h for the given periods; safe to run at any time and as often as you like.
-- periods: starts of minutes or hours; from: the first, to: the end of the last (exclusive).
INSERT INTO {database}.redundancy_{grain}
(
    window, hash_domain, model, medium, group_idx, owners_1, owners_2, owners_3, owners_4_7, owners_8_up,
    unique_tokens, physical_tokens, received_tokens, sampled_one_in, trust, windows, version
)
SELECT
    last.period AS window,
    last.hash_domain,
    last.model,
    last.medium,
    last.group_idx,
    sum(last.owners_1) AS owners_1,
    sum(last.owners_2) AS owners_2,
    sum(last.owners_3) AS owners_3,
    sum(last.owners_4_7) AS owners_4_7,
    sum(last.owners_8_up) AS owners_8_up,
    sum(last.unique_tokens) AS unique_tokens,
    sum(last.physical_tokens) AS physical_tokens,
    sum(last.received_tokens) AS received_tokens,
    max(last.sampled_one_in) AS sampled_one_in,
    max(last.trust) AS trust,
    sum(last.windows) AS windows,
    {version:UInt64} AS version
FROM
(
    SELECT
        {start}(fine.window) AS period,
        fine.hash_domain AS hash_domain,
        fine.model AS model,
        fine.medium AS medium,
        fine.group_idx AS group_idx,
        argMax(fine.owners_1, fine.window) AS owners_1,
        argMax(fine.owners_2, fine.window) AS owners_2,
        argMax(fine.owners_3, fine.window) AS owners_3,
        argMax(fine.owners_4_7, fine.window) AS owners_4_7,
        argMax(fine.owners_8_up, fine.window) AS owners_8_up,
        argMax(fine.unique_tokens, fine.window) AS unique_tokens,
        argMax(fine.physical_tokens, fine.window) AS physical_tokens,
        argMax(fine.received_tokens, fine.window) AS received_tokens,
        argMax(fine.sampled_one_in, fine.window) AS sampled_one_in,
        max(fine.trust) AS trust,
        {windows} AS windows
    FROM {database}.redundancy_{finer} AS fine FINAL
    WHERE fine.window >= {from:DateTime('UTC')}
        AND fine.window < {to:DateTime('UTC')}
        AND toStartOfHour(fine.window) >= toStartOfHour({from:DateTime('UTC')})
        AND toStartOfHour(fine.window) < {to:DateTime('UTC')}
        AND has({periods:Array(DateTime('UTC'))}, {start}(fine.window))
    GROUP BY period, fine.hash_domain, fine.model, fine.medium, fine.group_idx{shard}
) AS last
GROUP BY window, last.hash_domain, last.model, last.medium, last.group_idx
