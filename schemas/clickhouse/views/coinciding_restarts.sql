-- Restarts of several replicas of a hash domain with less than five minutes from one to the next (of the range and the
-- hour before it), those after which most was filled again first: `cleared` counts what was filled again after all of
-- them, and `spared` the part of it that one of the others would still have held, had they restarted in turn. How many
-- copies had another owner is taken from the last window but one before.
CREATE VIEW {database}.coinciding_restarts AS
SELECT *
FROM {database}.coinciding_restarts_windows(
    from = {from:DateTime('UTC')}, to = {to:DateTime('UTC')},
    seconds = (SELECT seconds FROM {database}.finest(from = {from:DateTime('UTC')}, to = {to:DateTime('UTC')})),
    seconds_from_hour_before = (
        SELECT seconds
        FROM {database}.finest(from = {from:DateTime('UTC')} - INTERVAL 1 HOUR, to = {to:DateTime('UTC')})
    )
)
