-- Rows of ten seconds: the winning version of each.
CREATE VIEW {database}.flow AS
SELECT *
FROM {database}.flow_10s FINAL
WHERE {bounds};

-- flow_series of windows of `seconds`.
CREATE VIEW {database}.flow_windows AS
-- for 10s, 1m, 1h
SELECT
    window,
    intDiv({step:UInt32} + {rest}, {length}) * {length} AS width,
    toDateTime(intDiv(toUnixTimestamp(window), width) * width, 'UTC') AS time,
    model, replica, dp_rank, medium, group_idx, stored_blocks, stored_tokens,
    filled_blocks, removed_blocks, evicted_blocks, evicted_tokens, cleared_blocks, expired_blocks, reannounced_blocks,
    unknown_removed_blocks, lifetime_hist, trust
FROM {database}.flow_{grain} FINAL
WHERE {seconds:UInt32} = {length}
    AND {bounds}
-- end
;

-- As without `_series`, from the table that fits the range. `time` is the start of the point of `width` seconds that a
-- window belongs to.
CREATE VIEW {database}.flow_series AS
SELECT *
FROM {database}.flow_windows({range}, step = {step:UInt32}, seconds = {finest});
