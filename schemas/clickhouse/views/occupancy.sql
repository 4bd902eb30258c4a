-- Rows of ten seconds: the winning version of each.
CREATE VIEW {database}.occupancy AS
SELECT *
FROM {database}.occupancy_10s FINAL
WHERE {bounds};

-- occupancy_series of windows of `seconds`.
CREATE VIEW {database}.occupancy_windows AS
-- for 10s, 1m, 1h
SELECT
    window,
    intDiv({step:UInt32} + {rest}, {length}) * {length} AS width,
    toDateTime(intDiv(toUnixTimestamp(window), width) * width, 'UTC') AS time,
    model, replica, dp_rank, medium, group_idx, block_size, entries, blocks, tokens,
    covered_blocks, capacity_blocks, store_only, at_least, trust
FROM {database}.occupancy_{grain} FINAL
WHERE {seconds:UInt32} = {length}
    AND {bounds}
-- end
;

-- As without `_series`, from the table that fits the range. `time` is the start of the point of `width` seconds that a
-- window belongs to.
CREATE VIEW {database}.occupancy_series AS
SELECT *
FROM {database}.occupancy_windows({range}, step = {step:UInt32}, seconds = {finest});
