-- Recomputes hot_prefixes_1m and hot_prefixes_1h for the given periods; safe to run at any time and as often as you like.
-- periods: starts of minutes or hours; from: the first, to: the end of the last (exclusive).
INSERT INTO {database}.hot_prefixes_{grain}
(
    window, hash_domain, model, group_idx, prefix, lora, depth_blocks, owners, shared_tokens, duplicated_tokens,
    refilled_tokens, refilled_tokens_missing, sampled_one_in, trust, windows, version
)
SELECT
    period, hash_domain, model, group_idx, listed.1, listed.2, listed.3, listed.4, listed.5, listed.6,
    listed.7, listed.8, listed.9, listed.10, windows, {version:UInt64}
FROM
(
    SELECT
        ranked.period AS period,
        ranked.hash_domain AS hash_domain,
        ranked.model AS model,
        ranked.group_idx AS group_idx,
        arraySort(
            groupArrayIf(
                (
                    ranked.prefix, ranked.lora, ranked.depth_blocks, ranked.owners, ranked.shared_tokens,
                    ranked.duplicated_tokens, ranked.refilled_tokens, ranked.refilled_tokens_missing,
                    ranked.sampled_one_in, ranked.trust
                ),
                ranked.duplicated_tokens > 0 AND ranked.by_duplicated <= 100
                    OR ranked.refilled_tokens > 0 AND ranked.by_refilled <= 100
            )
        ) AS listed,
        sum(ranked.windows) AS windows
    FROM
    (
        SELECT
            *,
            row_number() OVER (of_space ORDER BY duplicated_tokens DESC, prefix, lora) AS by_duplicated,
            row_number() OVER (of_space ORDER BY refilled_tokens DESC, prefix, lora) AS by_refilled
        FROM
        (
            SELECT
                {start}(each.at) AS period,
                each.hash_domain AS hash_domain,
                each.model AS model,
                each.group_idx AS group_idx,
                each.lora AS lora,
                each.prefix AS prefix,
                max(each.depth_blocks) AS depth_blocks,
                max(each.owners) AS owners,
                max(each.shared_tokens) AS shared_tokens,
                max(each.duplicated_tokens) AS duplicated_tokens,
                sum(each.refilled_tokens) AS refilled_tokens,
                sum(each.refilled_tokens_missing) AS refilled_tokens_missing,
                max(each.sampled_one_in) AS sampled_one_in,
                max(each.trust) AS trust,
                sumIf(each.windows, each.place = 1) AS windows
            FROM
            (
                -- for 1m
                SELECT
                    fine.window AS at,
                    fine.hash_domain AS hash_domain,
                    fine.model AS model,
                    fine.group_idx AS group_idx,
                    fine.lora AS lora,
                    fine.prefix AS prefix,
                    max(fine.depth_blocks) AS depth_blocks,
                    max(fine.owners) AS owners,
                    sum(fine.shared_tokens) AS shared_tokens,
                    sum(fine.duplicated_tokens) AS duplicated_tokens,
                    sum(fine.refilled_tokens) AS refilled_tokens,
                    sum(fine.refilled_tokens_missing) AS refilled_tokens_missing,
                    max(fine.sampled_one_in) AS sampled_one_in,
                    max(fine.trust) AS trust,
                    count() AS windows,
                    1 AS place
                FROM {database}.hot_prefixes_10s AS fine FINAL
                WHERE fine.window >= {from:DateTime('UTC')}
                    AND fine.window < {to:DateTime('UTC')}
                    AND toStartOfHour(fine.window) >= toStartOfHour({from:DateTime('UTC')})
                    AND toStartOfHour(fine.window) < {to:DateTime('UTC')}
                    AND has({periods:Array(DateTime('UTC'))}, toStartOfMinute(fine.window))
                GROUP BY at, fine.hash_domain, fine.model, fine.group_idx, fine.lora, fine.prefix
                -- end
                -- for 1h
                SELECT
                    fine.window AS at, hash_domain, model, group_idx, lora, prefix, depth_blocks, owners, shared_tokens,
                    duplicated_tokens, refilled_tokens, refilled_tokens_missing, sampled_one_in, trust, windows, place
                FROM {database}.hot_prefixes_1m AS fine FINAL
                ARRAY JOIN
                    lora, prefix, depth_blocks, owners, shared_tokens, duplicated_tokens, refilled_tokens,
                    refilled_tokens_missing, sampled_one_in, trust, arrayEnumerate(prefix) AS place
                WHERE fine.window >= {from:DateTime('UTC')}
                    AND fine.window < {to:DateTime('UTC')}
                    AND toStartOfHour(fine.window) >= toStartOfHour({from:DateTime('UTC')})
                    AND toStartOfHour(fine.window) < {to:DateTime('UTC')}
                    AND has({periods:Array(DateTime('UTC'))}, toStartOfHour(fine.window))
                -- end
            ) AS each
            GROUP BY period, each.hash_domain, each.model, each.group_idx, each.lora, each.prefix
        )
        WINDOW of_space AS (PARTITION BY period, hash_domain, model, group_idx)
    ) AS ranked
    GROUP BY period, hash_domain, model, group_idx
)
