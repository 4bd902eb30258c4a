-- hit_potential of the last hour.
CREATE VIEW {database}.hit_potential_1h AS
SELECT *
FROM {database}.hit_potential_series(
    from = (SELECT toUnixTimestamp(now('UTC')) - 3600),
    to = (SELECT toUnixTimestamp(now('UTC')))
);
