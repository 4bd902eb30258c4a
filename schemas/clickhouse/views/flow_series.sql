CREATE VIEW {database}.flow_series AS
SELECT
    window,
    intDiv({step:UInt32} + 9, 10) * 10 AS width,
    toDateTime(intDiv(toUnixTimestamp(window), width) * width, 'UTC') AS time,
    model, replica, dp_rank, medium, group_idx, stored_blocks, stored_tokens,
    filled_blocks, removed_blocks, evicted_blocks, evicted_tokens, cleared_blocks, expired_blocks, reannounced_blocks,
    unknown_removed_blocks, lifetime_hist, trust
FROM {database}.flow_10s FINAL
WHERE (SELECT seconds FROM {database}.finest(from = {from:DateTime('UTC')}, to = {to:DateTime('UTC')})) = 10
    AND window >= {from:DateTime('UTC')}
    AND window <= {to:DateTime('UTC')}
    AND toStartOfHour(window) >= toStartOfHour({from:DateTime('UTC')})
    AND toStartOfHour(window) <= {to:DateTime('UTC')}
UNION ALL
SELECT
    window,
    intDiv({step:UInt32} + 59, 60) * 60 AS width,
    toDateTime(intDiv(toUnixTimestamp(window), width) * width, 'UTC') AS time,
    model, replica, dp_rank, medium, group_idx, stored_blocks, stored_tokens,
    filled_blocks, removed_blocks, evicted_blocks, evicted_tokens, cleared_blocks, expired_blocks, reannounced_blocks,
    unknown_removed_blocks, lifetime_hist, trust
FROM {database}.flow_1m FINAL
WHERE (SELECT seconds FROM {database}.finest(from = {from:DateTime('UTC')}, to = {to:DateTime('UTC')})) = 60
    AND window >= toStartOfMinute({from:DateTime('UTC')})
    AND window <= {to:DateTime('UTC')}
    AND toStartOfHour(window) >= toStartOfHour({from:DateTime('UTC')})
    AND toStartOfHour(window) <= {to:DateTime('UTC')}
UNION ALL
SELECT
    window,
    intDiv({step:UInt32} + 3599, 3600) * 3600 AS width,
    toDateTime(intDiv(toUnixTimestamp(window), width) * width, 'UTC') AS time,
    model, replica, dp_rank, medium, group_idx, stored_blocks, stored_tokens,
    filled_blocks, removed_blocks, evicted_blocks, evicted_tokens, cleared_blocks, expired_blocks, reannounced_blocks,
    unknown_removed_blocks, lifetime_hist, trust
FROM {database}.flow_1h FINAL
WHERE (SELECT seconds FROM {database}.finest(from = {from:DateTime('UTC')}, to = {to:DateTime('UTC')})) = 3600
    AND window >= toStartOfHour({from:DateTime('UTC')})
    AND window <= {to:DateTime('UTC')}
    AND toStartOfMonth(window) >= toStartOfMonth({from:DateTime('UTC')})
    AND toStartOfMonth(window) <= {to:DateTime('UTC')}
