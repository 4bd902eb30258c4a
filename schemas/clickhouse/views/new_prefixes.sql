-- Prefixes that were not listed before, though kvlens followed the hash domain for five minutes or more (in the range
-- or, as long, before it), and what the other ones refilled.
CREATE VIEW {database}.new_prefixes AS
WITH
    toIntervalSecond(dateDiff('second', {from:DateTime('UTC')}, {to:DateTime('UTC')}) + 1) AS length,
    (SELECT seconds FROM {database}.finest(from = {from:DateTime('UTC')} - length, to = {to:DateTime('UTC')})) AS windows
SELECT *
FROM {database}.new_prefixes_windows(
    from = {from:DateTime('UTC')}, to = {to:DateTime('UTC')}, seconds = windows
)
