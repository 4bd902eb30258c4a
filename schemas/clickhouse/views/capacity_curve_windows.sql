-- capacity_curve_series of windows of `seconds`.
CREATE VIEW {database}.capacity_curve_windows AS
SELECT window, hash_domain, model, replica, dp_rank, group_idx, needed_hist, sampled_one_in, trust
FROM {database}.capacity_curve_10s FINAL
WHERE {seconds:UInt32} = 10
    AND window >= {from:DateTime('UTC')}
    AND window <= {to:DateTime('UTC')}
    AND toStartOfHour(window) >= toStartOfHour({from:DateTime('UTC')})
    AND toStartOfHour(window) <= {to:DateTime('UTC')}
UNION ALL
SELECT window, hash_domain, model, replica, dp_rank, group_idx, needed_hist, sampled_one_in, trust
FROM {database}.capacity_curve_1m FINAL
WHERE {seconds:UInt32} = 60
    AND window >= toStartOfMinute({from:DateTime('UTC')})
    AND window <= {to:DateTime('UTC')}
    AND toStartOfHour(window) >= toStartOfHour({from:DateTime('UTC')})
    AND toStartOfHour(window) <= {to:DateTime('UTC')}
UNION ALL
SELECT window, hash_domain, model, replica, dp_rank, group_idx, needed_hist, sampled_one_in, trust
FROM {database}.capacity_curve_1h FINAL
WHERE {seconds:UInt32} = 3600
    AND window >= toStartOfHour({from:DateTime('UTC')})
    AND window <= {to:DateTime('UTC')}
    AND toStartOfMonth(window) >= toStartOfMonth({from:DateTime('UTC')})
    AND toStartOfMonth(window) <= {to:DateTime('UTC')}
