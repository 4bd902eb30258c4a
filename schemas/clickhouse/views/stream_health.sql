CREATE VIEW {database}.stream_health AS
SELECT *
FROM {database}.stream_health_10s FINAL
WHERE window >= {from:DateTime('UTC')}
    AND window <= {to:DateTime('UTC')}
    AND toStartOfHour(window) >= toStartOfHour({from:DateTime('UTC')})
    AND toStartOfHour(window) <= {to:DateTime('UTC')}
