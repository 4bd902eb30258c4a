-- observed of windows of `length` seconds.
CREATE VIEW {database}.observed_windows AS
WITH
    multiIf(
        {length:UInt32} = 10, toDateTime(intDiv(toUnixTimestamp({from:DateTime('UTC')}) + 9, 10) * 10, 'UTC'),
        {length:UInt32} = 60, toStartOfMinute({from:DateTime('UTC')}),
        toStartOfHour({from:DateTime('UTC')})
    ) AS begin,
    multiIf(
        {length:UInt32} = 10, toDateTime(intDiv(toUnixTimestamp({to:DateTime('UTC')}) + 10, 10) * 10, 'UTC'),
        {length:UInt32} = 60, toStartOfMinute({to:DateTime('UTC')}) + INTERVAL 1 MINUTE,
        toStartOfHour({to:DateTime('UTC')}) + INTERVAL 1 HOUR
    ) AS end
SELECT
    greatest(begin, ifNull(minOrNull(toDateTime(opened_at, 'UTC')), begin)) AS since,
    greatest(10, dateDiff('second', since, least(end, greatest(now('UTC'), {to:DateTime('UTC')} + INTERVAL 1 SECOND))))
        AS seconds
FROM {database}.sources
WHERE opened_at <= {to:DateTime('UTC')}
    AND (closed_at IS NULL OR closed_at >= least(begin, {from:DateTime('UTC')}))
