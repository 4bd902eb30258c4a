-- Rows of ten seconds: the winning version of each.
CREATE VIEW {database}.stream_health AS
SELECT *
FROM {database}.stream_health_10s FINAL
WHERE {bounds};

-- stream_health_series of windows of `seconds`.
CREATE VIEW {database}.stream_health_windows AS
-- for 10s, 1m, 1h
SELECT
    window,
    intDiv({step:UInt32} + {rest}, {length}) * {length} AS width,
    toDateTime(intDiv(toUnixTimestamp(window), width) * width, 'UTC') AS time,
    model, replica, dp_rank, batches, events, duplicate_batches, gap_batches,
    replayed_batches, lost_batches, undecodable_events, restarts, incarnation, last_seq, lag_seconds, connected,
    drift_blocks, trust, trust_since
FROM {database}.stream_health_{grain} FINAL
WHERE {seconds:UInt32} = {length}
    AND {bounds}
-- end
;

-- As without `_series`, from the table that fits the range. `time` is the start of the point of `width` seconds that a
-- window belongs to.
CREATE VIEW {database}.stream_health_series AS
SELECT *
FROM {database}.stream_health_windows({range}, step = {step:UInt32}, seconds = {finest});
