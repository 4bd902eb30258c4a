-- Ranks that are complete again, and were not (until `incomplete_until`) within `fleet.horizon_seconds` before the end
-- of a range: causes of fills may be unknown until `unknown_until`. `lost_at`: when batches of them were first
-- lost for good in that time, 1970 where none were. From rows of minutes, so up to one too late.
CREATE VIEW {database}.lost_history AS
WITH
    assumeNotNull((
        SELECT toUInt32(max(value))
        FROM {database}.fleet_settings FINAL
        WHERE name = 'horizon_seconds'
    )) AS horizon
SELECT
    model,
    replica,
    dp_rank,
    minIf(window, lost_batches > 0) AS lost_at,
    maxIf(window, trust != 'complete') + INTERVAL 1 MINUTE AS incomplete_until,
    incomplete_until + toIntervalSecond(horizon) AS unknown_until
FROM {database}.stream_health_1m FINAL
WHERE horizon > 0
    AND window >= {to} - toIntervalSecond(60 + horizon)
    AND window <= {to}
    AND toStartOfHour(window) >= toStartOfHour({to} - toIntervalSecond(60 + horizon))
    AND toStartOfHour(window) <= {to}
    AND last_seq >= 0
GROUP BY model, replica, dp_rank
HAVING unknown_until > {to} AND incomplete_until <= max(window)
