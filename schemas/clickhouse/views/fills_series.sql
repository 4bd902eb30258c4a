CREATE VIEW {database}.fills_series AS
SELECT *
FROM {database}.fills_windows(
    from = {from:DateTime('UTC')}, to = {to:DateTime('UTC')}, step = {step:UInt32},
    seconds = (SELECT seconds FROM {database}.finest(from = {from:DateTime('UTC')}, to = {to:DateTime('UTC')}))
)
