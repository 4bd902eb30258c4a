CREATE VIEW {database}.capacity_curve AS
SELECT *
FROM {database}.capacity_curve_10s FINAL
WHERE window >= {from:DateTime('UTC')}
    AND window <= {to:DateTime('UTC')}
    AND toStartOfHour(window) >= toStartOfHour({from:DateTime('UTC')})
    AND toStartOfHour(window) <= {to:DateTime('UTC')}
