-- capacity_gain_series of windows of `seconds`.
CREATE VIEW {database}.capacity_gain_windows AS
SELECT
    hash_domain,
    model,
    replica,
    toUInt64(exp2(exponent - 1)) AS extra_tokens,
    extra_tokens * kv_bytes_per_token AS extra_bytes,
    saved AS saved_tokens,
    prefill_tokens,
    saved_tokens / nullIf(prefill_tokens, 0) AS saved_share,
    sampled_one_in,
    trust
FROM
(
    SELECT
        fills.hash_domain AS hash_domain,
        fills.model AS model,
        fills.replica AS replica,
        fills.prefill_tokens AS prefill_tokens,
        fills.sampled_one_in AS sampled_one_in,
        fills.trust AS trust,
        arrayCumSum(curve.needed) AS cumulated
    FROM
    (
        SELECT
            hash_domain,
            model,
            replica,
            group_idx,
            sum(prefill_tokens) AS prefill_tokens,
            max(sampled_one_in) AS sampled_one_in,
            max(trust) AS trust
        FROM {database}.fills_windows({range}, step = 10, seconds = {seconds:UInt32})
        GROUP BY hash_domain, model, replica, group_idx
        ORDER BY sum(filled_tokens) DESC, group_idx
        LIMIT 1 BY hash_domain, model, replica
    ) AS fills
    INNER JOIN
    (
        SELECT
            hash_domain,
            replica,
            group_idx,
            sumForEach(needed_hist) AS needed
        FROM {database}.capacity_curve_windows({range}, seconds = {seconds:UInt32})
        GROUP BY hash_domain, replica, group_idx
    ) AS curve
        ON curve.hash_domain = fills.hash_domain AND curve.replica = fills.replica
        AND curve.group_idx = fills.group_idx
) AS cumulated
ARRAY JOIN cumulated AS saved, arrayEnumerate(cumulated) AS exponent
LEFT JOIN
(
    SELECT model AS name, kv_bytes_per_token
    FROM {database}.models FINAL
) AS models ON models.name = cumulated.model;

-- Per replica: with so much more cache on each rank, at least so much of the prefill would have been hits.
-- Bytes are 0 where the settings do not say `kv_bytes_per_token` of the model. The group as in hit_potential.
CREATE VIEW {database}.capacity_gain AS
SELECT *
FROM {database}.capacity_gain_windows({range}, seconds = 10);

-- As without `_series`, from the table that fits the range.
CREATE VIEW {database}.capacity_gain_series AS
SELECT *
FROM {database}.capacity_gain_windows({range}, seconds = {finest});
