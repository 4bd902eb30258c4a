-- Minutes that are to be recomputed, and their hours: those with `noted` above `done`.
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
