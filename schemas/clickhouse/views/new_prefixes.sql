-- new_prefixes of windows of `seconds`.
CREATE VIEW {database}.new_prefixes_windows AS
WITH toIntervalSecond(dateDiff('second', {from}, {to}) + 1) AS length
SELECT
    hash_domain,
    lora,
    leftPad(lower(hex(prefix)), 16, '0') AS first_block,
    since,
    refilled_tokens,
    of_all - refilled_tokens AS others_refilled_tokens
FROM
(
    SELECT
        hash_domain,
        group_idx,
        lora,
        prefix,
        min(window) AS since,
        min(min(window)) OVER (PARTITION BY hash_domain) AS known_since,
        sumIf(refilled, window >= {from}) AS refilled_tokens,
        sum(refilled_tokens) OVER (PARTITION BY hash_domain, group_idx) AS of_all
    FROM {database}.prefix_refills_windows(
        from = {from} - length, to = {to}, seconds = {seconds:UInt32}
    )
    GROUP BY hash_domain, group_idx, lora, prefix
)
WHERE since >= {from} AND since >= known_since + INTERVAL 5 MINUTE AND refilled_tokens > 0
ORDER BY refilled_tokens DESC, first_block
LIMIT 1 BY hash_domain, first_block, lora;

-- Prefixes that were not listed before, though kvlens followed the hash domain for five minutes or more (in the range
-- or, as long, before it), and what the other ones refilled.
CREATE VIEW {database}.new_prefixes AS
WITH
    toIntervalSecond(dateDiff('second', {from}, {to}) + 1) AS length,
    (SELECT seconds FROM {database}.finest(from = {from} - length, to = {to})) AS windows
SELECT *
FROM {database}.new_prefixes_windows({range}, seconds = windows);
