-- Figures in a ClickHouse of your own, from `kvlens.figures.v1`: avoidable prefill by model.
--
--     clickhouse-client --queries-file figures.sql
--
-- Needs the broker's address below (and another topic where `kafka.topic_prefix` is not kvlens). The engine reads
-- committed records only, every compression that kvlens writes, and all that the topic still has: a day.
-- Where nothing comes: SELECT table, exceptions.text FROM system.kafka_consumers.

CREATE TABLE figures_in_kafka (figure String)
ENGINE = Kafka
SETTINGS kafka_broker_list = 'kafka:9092',
    kafka_topic_list = 'kvlens.figures.v1',
    kafka_group_name = 'my-figures',
    kafka_format = 'JSONAsString';

-- Of rows with one key the one with the highest version counts, so a figure that comes again changes nothing.
CREATE TABLE my_fills
(
    window DateTime('UTC'),
    hash_domain LowCardinality(String),
    model LowCardinality(String),
    replica LowCardinality(String),
    dp_rank UInt16,
    group_idx UInt16,
    shard UInt16,
    filled_tokens UInt64,
    promoted_tokens UInt64,
    transferred_tokens UInt64,
    generated_tokens UInt64,
    avoidable_tokens UInt64,
    version UInt64
)
ENGINE = ReplacingMergeTree(version)
ORDER BY (toStartOfHour(window), hash_domain, model, replica, dp_rank, group_idx, shard, window)
TTL window + INTERVAL 7 DAY DELETE;

CREATE MATERIALIZED VIEW figures_to_my_fills TO my_fills AS
SELECT
    parseDateTimeBestEffort(JSONExtractString(figure, 'window'), 'UTC') AS window,
    JSONExtractString(figure, 'hash_domain') AS hash_domain,
    JSONExtractString(figure, 'model') AS model,
    JSONExtractString(figure, 'replica') AS replica,
    JSONExtractUInt(figure, 'dp_rank') AS dp_rank,
    JSONExtractUInt(figure, 'group_idx') AS group_idx,
    JSONExtractUInt(figure, 'shard') AS shard,
    JSONExtractUInt(figure, 'filled_tokens') AS filled_tokens,
    JSONExtractUInt(figure, 'promoted_tokens') AS promoted_tokens,
    JSONExtractUInt(figure, 'transferred_tokens') AS transferred_tokens,
    JSONExtractUInt(figure, 'generated_tokens') AS generated_tokens,
    JSONExtractUInt(figure, 'peer_tokens') + JSONExtractUInt(figure, 'peer_and_evicted_tokens')
        + JSONExtractUInt(figure, 'evicted_tokens') + JSONExtractUInt(figure, 'evicted_elsewhere_tokens')
        + JSONExtractUInt(figure, 'cleared_tokens') AS avoidable_tokens,
    JSONExtractUInt(figure, 'version') AS version
FROM figures_in_kafka
WHERE JSONExtractString(figure, 'table') = 'fills_10s';

-- Prefill, and the part of it that had been computed before: the hit potential, in steps of five minutes. Of engines with
-- several KV-cache groups only the one that filled most counts, since each group holds the same tokens once more.
CREATE VIEW my_hit_potential_series AS
SELECT
    time,
    model,
    sum(prefill) AS prefill_tokens,
    sum(avoidable) AS avoidable_prefill_tokens,
    avoidable_prefill_tokens / nullIf(prefill_tokens, 0) AS avoidable_share
FROM
(
    SELECT
        toStartOfInterval(window, INTERVAL 5 MINUTE) AS time,
        model,
        replica,
        group_idx,
        sum(filled_tokens) AS filled,
        sum(toInt64(filled_tokens) - promoted_tokens - transferred_tokens - generated_tokens) AS prefill,
        sum(avoidable_tokens) AS avoidable
    FROM my_fills FINAL
    GROUP BY time, hash_domain, model, replica, group_idx
    ORDER BY filled DESC, group_idx
    LIMIT 1 BY time, hash_domain, model, replica
)
GROUP BY time, model;

-- The last hour, from the step in which it began.
CREATE VIEW my_hit_potential AS
SELECT
    model,
    sum(prefill_tokens) AS prefill_tokens,
    sum(avoidable_prefill_tokens) AS avoidable_prefill_tokens,
    avoidable_prefill_tokens / nullIf(prefill_tokens, 0) AS avoidable_share
FROM my_hit_potential_series
WHERE time >= toStartOfInterval(now('UTC') - INTERVAL 1 HOUR, INTERVAL 5 MINUTE)
GROUP BY model;
