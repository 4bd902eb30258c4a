-- What users call hot prefixes, such as their system prompts; from the settings. A row without a name says that the
-- settings of such a version were written, whatever is in them.
CREATE TABLE IF NOT EXISTS {database}.prefix_names
(
    first_block String,
    name String,
    version UInt64
)
ENGINE = {engine:ReplacingMergeTree(version)}
ORDER BY first_block;

-- The names in the settings of the worker that started last.
CREATE VIEW IF NOT EXISTS {database}.named_prefixes AS
SELECT first_block, name
FROM {database}.prefix_names FINAL
WHERE name != '' AND version = (SELECT max(version) FROM {database}.prefix_names);
