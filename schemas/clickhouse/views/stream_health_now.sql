-- Each source in its newest window, of those of the last minute.
CREATE VIEW {database}.stream_health_now AS
SELECT *
FROM {database}.stream_health_10s FINAL
WHERE window >= now('UTC') - INTERVAL 1 MINUTE
    AND toStartOfHour(window) >= toStartOfHour(now('UTC') - INTERVAL 1 MINUTE)
ORDER BY window DESC
LIMIT 1 BY model, replica, dp_rank
