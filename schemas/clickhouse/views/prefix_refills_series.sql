-- Tokens filled again in each window, by prefix, from the table that fits the range.
CREATE VIEW {database}.prefix_refills_series AS
SELECT *
FROM {database}.prefix_refills_windows(
    from = {from:DateTime('UTC')}, to = {to:DateTime('UTC')},
    seconds = (SELECT seconds FROM {database}.finest(from = {from:DateTime('UTC')}, to = {to:DateTime('UTC')}))
)
