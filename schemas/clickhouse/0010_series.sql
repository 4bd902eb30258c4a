-- Reading history for a picture: the finest table that is small enough, so that a panel costs about the same whether
-- it shows an hour or a year, ten replicas or thousands. `time` is the start of the point a window belongs to and
-- `width` its length in seconds: `step`, rounded up to whole windows. The arms that were not chosen have a condition
-- that is constant and false: nothing of them is read.

-- Length of the windows to read for a range: at most 100,000 windows of sources from the ten-second tables (which
-- hold up to eight rows for each, one a shard), 400,000 from the minute tables, and never more than two hours and a day.
CREATE VIEW IF NOT EXISTS {database}.finest AS
SELECT
    dateDiff('second', {from:DateTime('UTC')}, {to:DateTime('UTC')}) AS length,
    uniq(replica, dp_rank) AS sources,
    multiIf(
        length <= 7200 AND sources * length <= 10 * 100000, 10,
        length <= 86400 AND sources * length <= 60 * 400000, 60,
        3600
    ) AS seconds
FROM {database}.sources
WHERE opened_at <= {to:DateTime('UTC')}
    AND (closed_at IS NULL OR closed_at >= {from:DateTime('UTC')});

CREATE VIEW IF NOT EXISTS {database}.occupancy_series AS
SELECT
    window,
    intDiv({step:UInt32} + 9, 10) * 10 AS width,
    toDateTime(intDiv(toUnixTimestamp(window), width) * width, 'UTC') AS time,
    model, replica, dp_rank, medium, group_idx, block_size, entries, blocks, tokens,
    covered_blocks, capacity_blocks, store_only, trust
FROM {database}.occupancy_10s FINAL
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
    model, replica, dp_rank, medium, group_idx, block_size, entries, blocks, tokens,
    covered_blocks, capacity_blocks, store_only, trust
FROM {database}.occupancy_1m FINAL
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
    model, replica, dp_rank, medium, group_idx, block_size, entries, blocks, tokens,
    covered_blocks, capacity_blocks, store_only, trust
FROM {database}.occupancy_1h FINAL
WHERE (SELECT seconds FROM {database}.finest(from = {from:DateTime('UTC')}, to = {to:DateTime('UTC')})) = 3600
    AND window >= toStartOfHour({from:DateTime('UTC')})
    AND window <= {to:DateTime('UTC')}
    AND toStartOfMonth(window) >= toStartOfMonth({from:DateTime('UTC')})
    AND toStartOfMonth(window) <= {to:DateTime('UTC')};

CREATE VIEW IF NOT EXISTS {database}.flow_series AS
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
    AND toStartOfMonth(window) <= {to:DateTime('UTC')};

CREATE VIEW IF NOT EXISTS {database}.fills_series AS
SELECT
    window,
    intDiv({step:UInt32} + 9, 10) * 10 AS width,
    toDateTime(intDiv(toUnixTimestamp(window), width) * width, 'UTC') AS time,
    hash_domain, model, replica, dp_rank, group_idx, filled_tokens, promoted_tokens, peer_tokens,
    peer_and_evicted_tokens, evicted_tokens, evicted_elsewhere_tokens, cleared_tokens, cold_tokens, unknown_tokens,
    regret_hist, sampled_one_in, trust
FROM {database}.fills_10s FINAL
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
    hash_domain, model, replica, dp_rank, group_idx, filled_tokens, promoted_tokens, peer_tokens,
    peer_and_evicted_tokens, evicted_tokens, evicted_elsewhere_tokens, cleared_tokens, cold_tokens, unknown_tokens,
    regret_hist, sampled_one_in, trust
FROM {database}.fills_1m FINAL
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
    hash_domain, model, replica, dp_rank, group_idx, filled_tokens, promoted_tokens, peer_tokens,
    peer_and_evicted_tokens, evicted_tokens, evicted_elsewhere_tokens, cleared_tokens, cold_tokens, unknown_tokens,
    regret_hist, sampled_one_in, trust
FROM {database}.fills_1h FINAL
WHERE (SELECT seconds FROM {database}.finest(from = {from:DateTime('UTC')}, to = {to:DateTime('UTC')})) = 3600
    AND window >= toStartOfHour({from:DateTime('UTC')})
    AND window <= {to:DateTime('UTC')}
    AND toStartOfMonth(window) >= toStartOfMonth({from:DateTime('UTC')})
    AND toStartOfMonth(window) <= {to:DateTime('UTC')};

CREATE VIEW IF NOT EXISTS {database}.redundancy_series AS
SELECT
    window,
    intDiv({step:UInt32} + 9, 10) * 10 AS width,
    toDateTime(intDiv(toUnixTimestamp(window), width) * width, 'UTC') AS time,
    hash_domain, model, medium, group_idx, owners_1, owners_2, owners_3, owners_4_7, owners_8_up,
    unique_tokens, physical_tokens, sampled_one_in, trust
FROM {database}.redundancy_10s FINAL
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
    hash_domain, model, medium, group_idx, owners_1, owners_2, owners_3, owners_4_7, owners_8_up,
    unique_tokens, physical_tokens, sampled_one_in, trust
FROM {database}.redundancy_1m FINAL
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
    hash_domain, model, medium, group_idx, owners_1, owners_2, owners_3, owners_4_7, owners_8_up,
    unique_tokens, physical_tokens, sampled_one_in, trust
FROM {database}.redundancy_1h FINAL
WHERE (SELECT seconds FROM {database}.finest(from = {from:DateTime('UTC')}, to = {to:DateTime('UTC')})) = 3600
    AND window >= toStartOfHour({from:DateTime('UTC')})
    AND window <= {to:DateTime('UTC')}
    AND toStartOfMonth(window) >= toStartOfMonth({from:DateTime('UTC')})
    AND toStartOfMonth(window) <= {to:DateTime('UTC')};

CREATE VIEW IF NOT EXISTS {database}.stream_health_series AS
SELECT
    window,
    intDiv({step:UInt32} + 9, 10) * 10 AS width,
    toDateTime(intDiv(toUnixTimestamp(window), width) * width, 'UTC') AS time,
    model, replica, dp_rank, batches, events, duplicate_batches, gap_batches,
    replayed_batches, lost_batches, undecodable_events, restarts, incarnation, last_seq, lag_seconds, connected,
    drift_blocks, trust, trust_since
FROM {database}.stream_health_10s FINAL
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
    model, replica, dp_rank, batches, events, duplicate_batches, gap_batches,
    replayed_batches, lost_batches, undecodable_events, restarts, incarnation, last_seq, lag_seconds, connected,
    drift_blocks, trust, trust_since
FROM {database}.stream_health_1m FINAL
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
    model, replica, dp_rank, batches, events, duplicate_batches, gap_batches,
    replayed_batches, lost_batches, undecodable_events, restarts, incarnation, last_seq, lag_seconds, connected,
    drift_blocks, trust, trust_since
FROM {database}.stream_health_1h FINAL
WHERE (SELECT seconds FROM {database}.finest(from = {from:DateTime('UTC')}, to = {to:DateTime('UTC')})) = 3600
    AND window >= toStartOfHour({from:DateTime('UTC')})
    AND window <= {to:DateTime('UTC')}
    AND toStartOfMonth(window) >= toStartOfMonth({from:DateTime('UTC')})
    AND toStartOfMonth(window) <= {to:DateTime('UTC')};
