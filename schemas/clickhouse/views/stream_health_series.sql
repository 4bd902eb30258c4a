CREATE VIEW {database}.stream_health_series AS
SELECT *
FROM {database}.stream_health_windows(
    from = {from:DateTime('UTC')}, to = {to:DateTime('UTC')}, step = {step:UInt32},
    seconds = (SELECT seconds FROM {database}.finest(from = {from:DateTime('UTC')}, to = {to:DateTime('UTC')}))
)
