-- The same for a chart: `time` and `width` are those of the other series of the range. Never less than ten seconds:
-- before it runs, ClickHouse tries the division with a value of 0.
CREATE VIEW {database}.routing_series AS
SELECT
    window,
    width,
    toDateTime(intDiv(toUnixTimestamp(window), width) * width, 'UTC') AS time,
    model, tenant, replica, choices, judged_choices, worse_choices, best_tokens, chosen_tokens, lost_tokens,
    stale_choices, stale_lost_tokens, unknown_replica_choices, share_choices, upper_bound_choices, trust
FROM {database}.routing_10s({range})
WHERE (greatest(10, assumeNotNull((
    SELECT toUInt32(intDiv({step:UInt32} + seconds - 1, seconds) * seconds)
    FROM {database}.finest({range})
))) AS width) > 0
