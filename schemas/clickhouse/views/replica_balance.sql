-- replica_balance_series of windows of `seconds`.
CREATE VIEW {database}.replica_balance_windows AS
SELECT
    time,
    width,
    model,
    replica,
    filled_tokens,
    computed_tokens,
    transferred_tokens,
    reloaded_tokens,
    generated_tokens,
    toInt64(filled_tokens) - ifNull(computed_tokens, 0) - ifNull(transferred_tokens, 0) - ifNull(reloaded_tokens, 0)
        - ifNull(generated_tokens, 0) AS left_over_tokens,
    claimed_tokens,
    decoded_tokens,
    avoidable_tokens,
    counted_seconds
FROM
(
    SELECT
        time,
        width,
        model,
        replica,
        sum(filled) AS filled_tokens,
        sum(claimed) AS claimed_tokens,
        sum(decoded) AS decoded_tokens,
        sum(avoidable) AS avoidable_tokens,
        sum(computed) AS computed_tokens,
        sum(transferred) AS transferred_tokens,
        sum(reloaded) AS reloaded_tokens,
        sum(generated) AS generated_tokens,
        sum(seconds) AS counted_seconds,
        count(computed_tokens) OVER (PARTITION BY model, replica) AS counts
    FROM
    (
        SELECT
            time, toUInt32(width) AS width, model, replica, filled, claimed, decoded, avoidable,
            CAST(NULL, 'Nullable(Int64)') AS computed, CAST(NULL, 'Nullable(Int64)') AS transferred,
            CAST(NULL, 'Nullable(Int64)') AS reloaded, CAST(NULL, 'Nullable(Int64)') AS generated,
            toFloat64(0) AS seconds
        FROM
        (
            SELECT *, max(of_group) OVER (PARTITION BY hash_domain, model, replica) AS of_largest
            FROM
            (
                SELECT
                    time,
                    width,
                    hash_domain,
                    model,
                    replica,
                    group_idx,
                    sum(filled_tokens) AS filled,
                    sum(fills.transferred_tokens) AS claimed,
                    sum(fills.generated_tokens) AS decoded,
                    sum(peer_tokens + peer_and_evicted_tokens + evicted_tokens + evicted_elsewhere_tokens
                        + cleared_tokens) AS avoidable,
                    -- The group that filled most in the range, as in hit_potential; of equal ones the first.
                    (sum(sum(filled_tokens)) OVER (PARTITION BY hash_domain, model, replica, group_idx),
                        -toInt32(group_idx)) AS of_group
                FROM {database}.fills_windows({range}, step = {step:UInt32}, seconds = {seconds:UInt32}) AS fills
                GROUP BY time, width, hash_domain, model, replica, group_idx
            )
        )
        WHERE of_group = of_largest
        UNION ALL
        -- Never less than ten seconds: before it runs, ClickHouse tries the division with a value of 0.
        WITH greatest(10, {seconds:UInt32}) AS length
        SELECT
            toDateTime(intDiv(toUnixTimestamp(scrapes.time), width) * width, 'UTC') AS time,
            toUInt32(intDiv({step:UInt32} + length - 1, length) * length) AS width,
            model, replica, toUInt64(0), toUInt64(0), toUInt64(0), toUInt64(0),
            computed, transferred, reloaded, generated, counted_seconds
        FROM {database}.engine_hits_windows({range}, seconds = {seconds:UInt32}) AS scrapes
    )
    GROUP BY time, width, model, replica
)
WHERE counts > 0;

-- For each point of `step` seconds: tokens that a replica filled, beside what its engine counted of the same. Of the
-- group as in hit_potential, where the engine counts what it computes: for prompts, transferred, reloaded from lower
-- tiers, generated. What is left over is filled less these: below zero what filled no whole block, above zero what the
-- engine does not count, such as what it computes again after a preemption. `claimed_tokens` are the fills whose cause
-- is `transferred`, `decoded_tokens` those whose cause is `generated`. `counted_seconds` are those between scrapes, of
-- all ranks. NULL: not counted.
CREATE VIEW {database}.replica_balance_series AS
SELECT *
FROM {database}.replica_balance_windows({range}, step = {step:UInt32}, seconds = {finest});
