-- What to do first: the seven findings that are worth most.
CREATE VIEW {database}.advice AS
SELECT *
FROM {database}.findings({range})
ORDER BY place
LIMIT 7
