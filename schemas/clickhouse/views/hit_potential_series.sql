-- hit_potential from the table that fits the range; what an engine counted between its last scrape that is read and a
-- restart is missing.
CREATE VIEW {database}.hit_potential_series AS
SELECT *
FROM {database}.hit_potential_windows(
    from = {from:DateTime('UTC')}, to = {to:DateTime('UTC')},
    seconds = (SELECT seconds FROM {database}.finest(from = {from:DateTime('UTC')}, to = {to:DateTime('UTC')}))
)
