-- Rows of ten seconds: the winning version of each.
CREATE VIEW {database}.redundancy AS
SELECT *
FROM {database}.redundancy_10s FINAL
WHERE {bounds};

-- redundancy_series of windows of `seconds`.
CREATE VIEW {database}.redundancy_windows AS
-- for 10s, 1m, 1h
SELECT
    window,
    intDiv({step:UInt32} + {rest}, {length}) * {length} AS width,
    toDateTime(intDiv(toUnixTimestamp(window), width) * width, 'UTC') AS time,
    hash_domain, model, medium, group_idx, owners_1, owners_2, owners_3, owners_4_7, owners_8_up,
    unique_tokens, physical_tokens, received_tokens, sampled_one_in, trust
FROM {database}.redundancy_{grain} FINAL
WHERE {seconds:UInt32} = {length}
    AND {bounds}
-- end
;

-- As without `_series`, from the table that fits the range. `time` is the start of the point of `width` seconds that a
-- window belongs to.
CREATE VIEW {database}.redundancy_series AS
SELECT *
FROM {database}.redundancy_windows({range}, step = {step:UInt32}, seconds = {finest});
