-- observed of windows of `length` seconds.
CREATE VIEW {database}.observed_windows AS
WITH
    multiIf(
        {length:UInt32} = 10, toDateTime(intDiv(toUnixTimestamp({from}) + 9, 10) * 10, 'UTC'),
        {length:UInt32} = 60, toStartOfMinute({from}),
        toStartOfHour({from})
    ) AS begin,
    multiIf(
        {length:UInt32} = 10, toDateTime(intDiv(toUnixTimestamp({to}) + 10, 10) * 10, 'UTC'),
        {length:UInt32} = 60, toStartOfMinute({to}) + INTERVAL 1 MINUTE,
        toStartOfHour({to}) + INTERVAL 1 HOUR
    ) AS end
SELECT
    greatest(begin, ifNull(minOrNull(toDateTime(opened_at, 'UTC')), begin)) AS since,
    greatest(10, dateDiff('second', since, least(end, greatest(now('UTC'), {to} + INTERVAL 1 SECOND))))
        AS seconds
FROM {database}.sources FINAL
WHERE opened_at <= {to}
    AND (closed_at IS NULL OR closed_at >= least(begin, {from}));

-- For how many `seconds` `since` the windows read of a range say what was, and kvlens knew of a source: rates are over
-- these. Windows of minutes and hours in which the range begins or ends are read whole, that of now as far as it is.
CREATE VIEW {database}.observed AS
SELECT *
FROM {database}.observed_windows({range}, length = {finest});
