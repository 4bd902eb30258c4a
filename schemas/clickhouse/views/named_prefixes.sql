-- The names in the settings of the worker that started last.
CREATE VIEW {database}.named_prefixes AS
SELECT first_block, name
FROM {database}.prefix_names FINAL
WHERE name != '' AND version = (SELECT max(version) FROM {database}.prefix_names)
