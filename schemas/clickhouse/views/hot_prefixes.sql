-- Per prefix: the most that was held several times over at the end of a window, and all that was filled again.
CREATE VIEW {database}.hot_prefixes AS
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
        hash_domain,
        model,
        group_idx,
        lora,
        prefix,
        max(depth_blocks) AS depth,
        max(owners) AS most_owners,
        sum(shared_tokens) AS shared,
        sum(duplicated_tokens) AS duplicated,
        sum(refilled_tokens) AS refilled,
        sum(refilled_tokens_missing) AS missing,
        max(sampled_one_in) AS one_in,
        max(trust) AS worst_trust
    FROM {database}.hot_prefixes_10s FINAL
    WHERE window >= {from:DateTime('UTC')}
        AND window <= {to:DateTime('UTC')}
        AND toStartOfHour(window) >= toStartOfHour({from:DateTime('UTC')})
        AND toStartOfHour(window) <= {to:DateTime('UTC')}
    GROUP BY hash_domain, model, group_idx, lora, prefix, window
)
GROUP BY hash_domain, model, group_idx, lora, prefix
