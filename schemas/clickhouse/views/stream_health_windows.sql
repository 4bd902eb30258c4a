-- stream_health_series of windows of `seconds`.
CREATE VIEW {database}.stream_health_windows AS
SELECT
    window,
    intDiv({step:UInt32} + 9, 10) * 10 AS width,
    toDateTime(intDiv(toUnixTimestamp(window), width) * width, 'UTC') AS time,
    model, replica, dp_rank, batches, events, duplicate_batches, gap_batches,
    replayed_batches, lost_batches, undecodable_events, restarts, incarnation, last_seq, lag_seconds, connected,
    drift_blocks, trust, trust_since
FROM {database}.stream_health_10s FINAL
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
    model, replica, dp_rank, batches, events, duplicate_batches, gap_batches,
    replayed_batches, lost_batches, undecodable_events, restarts, incarnation, last_seq, lag_seconds, connected,
    drift_blocks, trust, trust_since
FROM {database}.stream_health_1m FINAL
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
    model, replica, dp_rank, batches, events, duplicate_batches, gap_batches,
    replayed_batches, lost_batches, undecodable_events, restarts, incarnation, last_seq, lag_seconds, connected,
    drift_blocks, trust, trust_since
FROM {database}.stream_health_1h FINAL
WHERE {seconds:UInt32} = 3600
    AND window >= toStartOfHour({from:DateTime('UTC')})
    AND window <= {to:DateTime('UTC')}
    AND toStartOfMonth(window) >= toStartOfMonth({from:DateTime('UTC')})
    AND toStartOfMonth(window) <= {to:DateTime('UTC')}
