-- Rows of ten seconds: the winning version of each.
CREATE VIEW {database}.objects AS
SELECT *
FROM {database}.objects_10s FINAL
WHERE {bounds}
