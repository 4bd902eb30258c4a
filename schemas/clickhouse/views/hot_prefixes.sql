-- hot_prefixes_series of windows of `seconds`.
CREATE VIEW {database}.hot_prefixes_windows AS
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
    WHERE {seconds:UInt32} = 10
        AND {bounds}
    GROUP BY hash_domain, model, group_idx, lora, prefix, window
    UNION ALL
    -- for 1m, 1h
    SELECT
        hash_domain, model, group_idx, lora, prefix,
        depth_blocks, owners, shared_tokens, duplicated_tokens, refilled_tokens,
        refilled_tokens_missing, sampled_one_in, trust
    FROM {database}.hot_prefixes_{grain} FINAL
    ARRAY JOIN
        lora, prefix, depth_blocks, owners, shared_tokens, duplicated_tokens, refilled_tokens,
        refilled_tokens_missing, sampled_one_in, trust
    WHERE {seconds:UInt32} = {length}
        AND {bounds}
    -- end
)
GROUP BY hash_domain, model, group_idx, lora, prefix;

-- Per prefix: the most that was held several times over at the end of a window, and all that was filled again.
CREATE VIEW {database}.hot_prefixes AS
SELECT *
FROM {database}.hot_prefixes_windows({range}, seconds = 10);

-- As without `_series`, from the table that fits the range. Minutes and hours list 100 by each figure, so what was
-- refilled a little at a time may be missing there; what was duplicated most is not.
CREATE VIEW {database}.hot_prefixes_series AS
SELECT *
FROM {database}.hot_prefixes_windows({range}, seconds = {finest});
