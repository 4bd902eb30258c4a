-- prefix_refills_series of windows of `seconds`.
CREATE VIEW {database}.prefix_refills_windows AS
SELECT window, hash_domain, model, group_idx, lora, prefix, refilled_tokens AS refilled
FROM {database}.hot_prefixes_10s FINAL
WHERE {seconds:UInt32} = 10
    AND window >= {from:DateTime('UTC')}
    AND window <= {to:DateTime('UTC')}
    AND toStartOfHour(window) >= toStartOfHour({from:DateTime('UTC')})
    AND toStartOfHour(window) <= {to:DateTime('UTC')}
UNION ALL
SELECT window, hash_domain, model, group_idx, lora, prefix, refilled_tokens AS refilled
FROM {database}.hot_prefixes_1m FINAL
ARRAY JOIN lora, prefix, refilled_tokens
WHERE {seconds:UInt32} = 60
    AND window >= toStartOfMinute({from:DateTime('UTC')})
    AND window <= {to:DateTime('UTC')}
    AND toStartOfHour(window) >= toStartOfHour({from:DateTime('UTC')})
    AND toStartOfHour(window) <= {to:DateTime('UTC')}
UNION ALL
SELECT window, hash_domain, model, group_idx, lora, prefix, refilled_tokens AS refilled
FROM {database}.hot_prefixes_1h FINAL
ARRAY JOIN lora, prefix, refilled_tokens
WHERE {seconds:UInt32} = 3600
    AND window >= toStartOfHour({from:DateTime('UTC')})
    AND window <= {to:DateTime('UTC')}
    AND toStartOfMonth(window) >= toStartOfMonth({from:DateTime('UTC')})
    AND toStartOfMonth(window) <= {to:DateTime('UTC')}
