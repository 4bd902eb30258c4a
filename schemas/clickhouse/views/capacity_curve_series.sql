CREATE VIEW {database}.capacity_curve_series AS
SELECT *
FROM {database}.capacity_curve_windows(
    from = {from:DateTime('UTC')}, to = {to:DateTime('UTC')},
    seconds = (SELECT seconds FROM {database}.finest(from = {from:DateTime('UTC')}, to = {to:DateTime('UTC')}))
)
