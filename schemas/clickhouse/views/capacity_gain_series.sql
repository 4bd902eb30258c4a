-- capacity_gain from the table that fits the range.
CREATE VIEW {database}.capacity_gain_series AS
SELECT *
FROM {database}.capacity_gain_windows(
    from = {from:DateTime('UTC')}, to = {to:DateTime('UTC')},
    seconds = (SELECT seconds FROM {database}.finest(from = {from:DateTime('UTC')}, to = {to:DateTime('UTC')}))
)
