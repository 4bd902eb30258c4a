-- The capacity curve of each medium: how many of its accesses would have found their object with an LRU cache of so
-- many MiB, and how many would not.
CREATE VIEW {database}.object_curve AS
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
    FROM {database}.objects({range}) AS one
    GROUP BY model, replica, dp_rank, medium
)
ARRAY JOIN arrayZip(arrayCumSum(needed), arrayEnumerate(needed)) AS each
