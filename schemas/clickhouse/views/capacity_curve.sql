-- Rows of ten seconds: the winning version of each.
CREATE VIEW {database}.capacity_curve AS
SELECT *
FROM {database}.capacity_curve_10s FINAL
WHERE {bounds};

-- capacity_curve_series of windows of `seconds`.
CREATE VIEW {database}.capacity_curve_windows AS
-- for 10s, 1m, 1h
SELECT window, hash_domain, model, replica, dp_rank, group_idx, needed_hist, sampled_one_in, trust
FROM {database}.capacity_curve_{grain} FINAL
WHERE {seconds:UInt32} = {length}
    AND {bounds}
-- end
;

-- As without `_series`, from the table that fits the range.
CREATE VIEW {database}.capacity_curve_series AS
SELECT *
FROM {database}.capacity_curve_windows({range}, seconds = {finest});
