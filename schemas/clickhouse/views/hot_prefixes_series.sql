-- hot_prefixes from the table that fits the range. Minutes and hours list 100 by each figure, so what was refilled a
-- little at a time may be missing there; what was duplicated most is not.
CREATE VIEW {database}.hot_prefixes_series AS
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
        hash_domain, model, group_idx, lora, prefix,
        max(depth_blocks) AS depth, max(owners) AS most_owners, sum(shared_tokens) AS shared,
        sum(duplicated_tokens) AS duplicated, sum(refilled_tokens) AS refilled,
        sum(refilled_tokens_missing) AS missing, max(sampled_one_in) AS one_in, max(trust) AS worst_trust
    FROM {database}.hot_prefixes_10s FINAL
    WHERE (SELECT seconds FROM {database}.finest(from = {from:DateTime('UTC')}, to = {to:DateTime('UTC')})) = 10
        AND window >= {from:DateTime('UTC')}
        AND window <= {to:DateTime('UTC')}
        AND toStartOfHour(window) >= toStartOfHour({from:DateTime('UTC')})
        AND toStartOfHour(window) <= {to:DateTime('UTC')}
    GROUP BY hash_domain, model, group_idx, lora, prefix, window
    UNION ALL
    SELECT
        hash_domain, model, group_idx, lora, prefix,
        depth_blocks, owners, shared_tokens, duplicated_tokens, refilled_tokens,
        refilled_tokens_missing, sampled_one_in, trust
    FROM {database}.hot_prefixes_1m FINAL
    ARRAY JOIN
        lora, prefix, depth_blocks, owners, shared_tokens, duplicated_tokens, refilled_tokens,
        refilled_tokens_missing, sampled_one_in, trust
    WHERE (SELECT seconds FROM {database}.finest(from = {from:DateTime('UTC')}, to = {to:DateTime('UTC')})) = 60
        AND window >= toStartOfMinute({from:DateTime('UTC')})
        AND window <= {to:DateTime('UTC')}
        AND toStartOfHour(window) >= toStartOfHour({from:DateTime('UTC')})
        AND toStartOfHour(window) <= {to:DateTime('UTC')}
    UNION ALL
    SELECT
        hash_domain, model, group_idx, lora, prefix,
        depth_blocks, owners, shared_tokens, duplicated_tokens, refilled_tokens,
        refilled_tokens_missing, sampled_one_in, trust
    FROM {database}.hot_prefixes_1h FINAL
    ARRAY JOIN
        lora, prefix, depth_blocks, owners, shared_tokens, duplicated_tokens, refilled_tokens,
        refilled_tokens_missing, sampled_one_in, trust
    WHERE (SELECT seconds FROM {database}.finest(from = {from:DateTime('UTC')}, to = {to:DateTime('UTC')})) = 3600
        AND window >= toStartOfHour({from:DateTime('UTC')})
        AND window <= {to:DateTime('UTC')}
        AND toStartOfMonth(window) >= toStartOfMonth({from:DateTime('UTC')})
        AND toStartOfMonth(window) <= {to:DateTime('UTC')}
)
GROUP BY hash_domain, model, group_idx, lora, prefix
