-- For how many `seconds` `since` the windows read of a range say what was, and kvlens knew of a source: rates are over
-- these. Windows of minutes and hours in which the range begins or ends are read whole, that of now as far as it is.
CREATE VIEW {database}.observed AS
SELECT *
FROM {database}.observed_windows(
    from = {from:DateTime('UTC')}, to = {to:DateTime('UTC')},
    length = (SELECT seconds FROM {database}.finest(from = {from:DateTime('UTC')}, to = {to:DateTime('UTC')}))
)
