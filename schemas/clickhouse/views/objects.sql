CREATE VIEW {database}.objects AS
SELECT *
FROM {database}.objects_10s FINAL
WHERE {bounds}
