-- Reading the ten-second tables: only the winning version of a row, and both bounds on the sort key, without which
-- FINAL reads every granule. Both ends are included.

CREATE VIEW IF NOT EXISTS {database}.occupancy AS
SELECT *
FROM {database}.occupancy_10s FINAL
WHERE window >= {from:DateTime('UTC')}
    AND window <= {to:DateTime('UTC')}
    AND toStartOfHour(window) >= toStartOfHour({from:DateTime('UTC')})
    AND toStartOfHour(window) <= {to:DateTime('UTC')};

CREATE VIEW IF NOT EXISTS {database}.flow AS
SELECT *
FROM {database}.flow_10s FINAL
WHERE window >= {from:DateTime('UTC')}
    AND window <= {to:DateTime('UTC')}
    AND toStartOfHour(window) >= toStartOfHour({from:DateTime('UTC')})
    AND toStartOfHour(window) <= {to:DateTime('UTC')};

CREATE VIEW IF NOT EXISTS {database}.stream_health AS
SELECT *
FROM {database}.stream_health_10s FINAL
WHERE window >= {from:DateTime('UTC')}
    AND window <= {to:DateTime('UTC')}
    AND toStartOfHour(window) >= toStartOfHour({from:DateTime('UTC')})
    AND toStartOfHour(window) <= {to:DateTime('UTC')};
