-- What to do first: the seven findings that are worth most.
CREATE VIEW {database}.advice AS
SELECT *
FROM {database}.findings(from = {from:DateTime('UTC')}, to = {to:DateTime('UTC')})
ORDER BY place
LIMIT 7
