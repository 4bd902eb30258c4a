-- prefix_refills_series of windows of `seconds`.
CREATE VIEW {database}.prefix_refills_windows AS
SELECT window, hash_domain, model, group_idx, lora, prefix, refilled_tokens AS refilled
FROM {database}.hot_prefixes_10s FINAL
WHERE {seconds:UInt32} = 10
    AND {bounds}
UNION ALL
-- for 1m, 1h
SELECT window, hash_domain, model, group_idx, lora, prefix, refilled_tokens AS refilled
FROM {database}.hot_prefixes_{grain} FINAL
ARRAY JOIN lora, prefix, refilled_tokens
WHERE {seconds:UInt32} = {length}
    AND {bounds}
-- end
;

-- Tokens filled again in each window, by prefix.
CREATE VIEW {database}.prefix_refills_series AS
SELECT *
FROM {database}.prefix_refills_windows({range}, seconds = {finest});
