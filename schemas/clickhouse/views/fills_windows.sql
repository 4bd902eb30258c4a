-- fills_series of windows of `seconds`.
CREATE VIEW {database}.fills_windows AS
SELECT
    window,
    intDiv({step:UInt32} + 9, 10) * 10 AS width,
    toDateTime(intDiv(toUnixTimestamp(window), width) * width, 'UTC') AS time,
    hash_domain, model, replica, dp_rank, group_idx, filled_blocks, filled_tokens, promoted_tokens, peer_tokens,
    peer_and_evicted_tokens, evicted_tokens, evicted_elsewhere_tokens, cleared_tokens, cold_tokens, unknown_tokens,
    regret_hist, sampled_one_in, trust
FROM {database}.fills_10s FINAL
WHERE {seconds:UInt32} = 10
    AND window >= {from:DateTime('UTC')}
    AND window <= {to:DateTime('UTC')}
    AND toStartOfHour(window) >= toStartOfHour({from:DateTime('UTC')})
    AND toStartOfHour(window) <= {to:DateTime('UTC')}
UNION ALL
SELECT
    window,
    intDiv({step:UInt32} + 59, 60) * 60 AS width,
    toDateTime(intDiv(toUnixTimestamp(window), width) * width, 'UTC') AS time,
    hash_domain, model, replica, dp_rank, group_idx, filled_blocks, filled_tokens, promoted_tokens, peer_tokens,
    peer_and_evicted_tokens, evicted_tokens, evicted_elsewhere_tokens, cleared_tokens, cold_tokens, unknown_tokens,
    regret_hist, sampled_one_in, trust
FROM {database}.fills_1m FINAL
WHERE {seconds:UInt32} = 60
    AND window >= toStartOfMinute({from:DateTime('UTC')})
    AND window <= {to:DateTime('UTC')}
    AND toStartOfHour(window) >= toStartOfHour({from:DateTime('UTC')})
    AND toStartOfHour(window) <= {to:DateTime('UTC')}
UNION ALL
SELECT
    window,
    intDiv({step:UInt32} + 3599, 3600) * 3600 AS width,
    toDateTime(intDiv(toUnixTimestamp(window), width) * width, 'UTC') AS time,
    hash_domain, model, replica, dp_rank, group_idx, filled_blocks, filled_tokens, promoted_tokens, peer_tokens,
    peer_and_evicted_tokens, evicted_tokens, evicted_elsewhere_tokens, cleared_tokens, cold_tokens, unknown_tokens,
    regret_hist, sampled_one_in, trust
FROM {database}.fills_1h FINAL
WHERE {seconds:UInt32} = 3600
    AND window >= toStartOfHour({from:DateTime('UTC')})
    AND window <= {to:DateTime('UTC')}
    AND toStartOfMonth(window) >= toStartOfMonth({from:DateTime('UTC')})
    AND toStartOfMonth(window) <= {to:DateTime('UTC')}
