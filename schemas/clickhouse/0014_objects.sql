-- What the worker writes of blocks whose publisher says their bytes: what they take, and how they were used. There are
-- few such sources, so there are no minutes and hours of it: ten seconds are kept for thirty days.
CREATE TABLE IF NOT EXISTS {database}.objects_10s
(
    window DateTime('UTC') CODEC(DoubleDelta, ZSTD(1)),
    model LowCardinality(String) CODEC(ZSTD(1)),
    replica LowCardinality(String) CODEC(ZSTD(1)),
    dp_rank UInt16 CODEC(ZSTD(1)),
    medium LowCardinality(String) CODEC(ZSTD(1)),
    group_idx UInt16 CODEC(ZSTD(1)),
    objects UInt64 CODEC(Delta, ZSTD(1)),
    bytes UInt64 CODEC(Delta, ZSTD(1)),
    capacity_bytes UInt64 CODEC(Delta, ZSTD(1)),
    stored_objects UInt64 CODEC(T64, ZSTD(1)),
    stored_bytes UInt64 CODEC(T64, ZSTD(1)),
    accesses UInt64 CODEC(T64, ZSTD(1)),
    accessed_tokens UInt64 CODEC(T64, ZSTD(1)),
    accessed_bytes UInt64 CODEC(T64, ZSTD(1)),
    hits UInt64 CODEC(T64, ZSTD(1)),
    hit_tokens UInt64 CODEC(T64, ZSTD(1)),
    hit_bytes UInt64 CODEC(T64, ZSTD(1)),
    first_accesses UInt64 CODEC(T64, ZSTD(1)),
    unknown_accesses UInt64 CODEC(T64, ZSTD(1)),
    unlisted_objects UInt64 CODEC(T64, ZSTD(1)),
    uses_hist Array(UInt64) CODEC(T64, ZSTD(1)),
    reuse_hist Array(UInt64) CODEC(T64, ZSTD(1)),
    needed_hist Array(UInt64) CODEC(T64, ZSTD(1)),
    trust Enum8('complete' = 1, 'partial' = 2, 'degraded' = 3),
    trust_since DateTime64(3, 'UTC') CODEC(ZSTD(1)),
    version UInt64 CODEC(Delta, ZSTD(1))
)
ENGINE = {engine:ReplacingMergeTree(version)}
PARTITION BY toYYYYMMDD(window)
ORDER BY (toStartOfHour(window), model, replica, dp_rank, medium, group_idx, window)
TTL window + INTERVAL 30 DAY DELETE
SETTINGS ttl_only_drop_parts = 1;

CREATE VIEW IF NOT EXISTS {database}.objects AS
SELECT *
FROM {database}.objects_10s FINAL
WHERE window >= {from:DateTime('UTC')}
    AND window <= {to:DateTime('UTC')}
    AND toStartOfHour(window) >= toStartOfHour({from:DateTime('UTC')})
    AND toStartOfHour(window) <= {to:DateTime('UTC')};

-- The same of whole media, all groups together: bytes against the capacity declared, uses, hits and the share of hits
-- among objects read or stored. Hits are NULL where accesses are not one request each (docs/figures.md), and where there
-- were none; so add up hits and stored objects of a range before you divide. Groups hold different tensors of the same
-- tokens, so tokens are those of the group with most.
CREATE VIEW IF NOT EXISTS {database}.object_use AS
SELECT
    window,
    model,
    replica,
    dp_rank,
    medium,
    sum(one.objects) AS objects,
    sum(one.bytes) AS bytes,
    max(one.capacity_bytes) AS capacity_bytes,
    sum(one.stored_objects) AS stored_objects,
    sum(one.stored_bytes) AS stored_bytes,
    sum(one.accesses) AS accesses,
    max(one.accessed_tokens) AS accessed_tokens,
    sum(one.accessed_bytes) AS accessed_bytes,
    if(accesses > 0 AND sum(one.hits) = accesses, toNullable(accesses), NULL) AS hits,
    if(isNull(hits), NULL, toNullable(max(one.hit_tokens))) AS hit_tokens,
    if(isNull(hits), NULL, toNullable(sum(one.hit_bytes))) AS hit_bytes,
    hits / nullIf(hits + stored_objects, 0) AS hit_rate,
    sum(one.first_accesses) AS first_accesses,
    sum(one.unknown_accesses) AS unknown_accesses,
    sum(one.unlisted_objects) AS unlisted_objects,
    max(one.trust) AS trust
FROM {database}.objects(from = {from:DateTime('UTC')}, to = {to:DateTime('UTC')}) AS one
GROUP BY window, model, replica, dp_rank, medium;

-- The capacity curve of each medium: how many of its accesses in the range would have found their object with a cache of
-- so many MiB from which leaves first what was used longest ago, and how many would not.
CREATE VIEW IF NOT EXISTS {database}.object_curve AS
SELECT
    model,
    replica,
    dp_rank,
    medium,
    toUInt64(exp2(each.2 - 1)) AS cache_mib,
    each.1 AS kept_accesses,
    counted - each.1 AS lost_accesses,
    capacity AS capacity_bytes,
    worst AS trust
FROM
(
    SELECT
        model,
        replica,
        dp_rank,
        medium,
        sumForEach(one.needed_hist) AS needed,
        sum(one.accesses) AS counted,
        max(one.capacity_bytes) AS capacity,
        max(one.trust) AS worst
    FROM {database}.objects(from = {from:DateTime('UTC')}, to = {to:DateTime('UTC')}) AS one
    GROUP BY model, replica, dp_rank, medium
)
ARRAY JOIN arrayZip(arrayCumSum(needed), arrayEnumerate(needed)) AS each;

-- Bytes and uses for a chart: `time` and `width` are those of the other series of the range. Never less than ten
-- seconds: before it runs, ClickHouse tries the division with a value of 0.
CREATE VIEW IF NOT EXISTS {database}.object_series AS
SELECT
    window,
    width,
    toDateTime(intDiv(toUnixTimestamp(window), width) * width, 'UTC') AS time,
    model, replica, dp_rank, medium, objects, bytes, capacity_bytes, stored_objects, stored_bytes, accesses,
    accessed_tokens, accessed_bytes, hits, hit_tokens, hit_bytes, first_accesses, unknown_accesses, unlisted_objects,
    trust
FROM {database}.object_use(from = {from:DateTime('UTC')}, to = {to:DateTime('UTC')})
WHERE (greatest(10, assumeNotNull((
    SELECT toUInt32(intDiv({step:UInt32} + seconds - 1, seconds) * seconds)
    FROM {database}.finest(from = {from:DateTime('UTC')}, to = {to:DateTime('UTC')})
))) AS width) > 0;
