-- Which minutes are to be recomputed, hours with them: a worker notes a minute before it writes ten-second rows into it,
-- with a number of its own, and `done` is the number up to which it has recomputed it since. What is noted and not done
-- is late, whoever noted it may have been killed.

CREATE TABLE IF NOT EXISTS {database}.rollups_due
(
    worker String CODEC(ZSTD(1)),
    family LowCardinality(String) CODEC(ZSTD(1)),
    minute DateTime('UTC') CODEC(ZSTD(1)),
    noted SimpleAggregateFunction(max, UInt64) CODEC(ZSTD(1)),
    noted_at SimpleAggregateFunction(max, DateTime('UTC')) CODEC(ZSTD(1)),
    done SimpleAggregateFunction(max, UInt64) CODEC(ZSTD(1))
)
ENGINE = {engine:AggregatingMergeTree()}
ORDER BY (worker, family, minute)
TTL minute + INTERVAL 9 DAY DELETE;
