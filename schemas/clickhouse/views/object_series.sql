-- Bytes and uses for a chart: `time` and `width` are those of the other series of the range. Never less than ten
-- seconds: before it runs, ClickHouse tries the division with a value of 0.
CREATE VIEW {database}.object_series AS
SELECT
    window,
    width,
    toDateTime(intDiv(toUnixTimestamp(window), width) * width, 'UTC') AS time,
    model, replica, dp_rank, medium, objects, bytes, capacity_bytes, stored_objects, stored_bytes, accesses,
    accessed_tokens, accessed_bytes, hits, hit_tokens, hit_bytes, first_accesses, unknown_accesses, unlisted_objects,
    trust
FROM {database}.object_use({range})
WHERE (greatest(10, assumeNotNull((
    SELECT toUInt32(intDiv({step:UInt32} + seconds - 1, seconds) * seconds)
    FROM {database}.finest({range})
))) AS width) > 0
