-- What engines say of their CPU tier, and what is odd about a stream.

ALTER TABLE {database}.engine_counters
    ADD COLUMN IF NOT EXISTS cpu_capacity_tokens Nullable(UInt64) CODEC(ZSTD(1)) AFTER prefill_tokens;

ALTER TABLE {database}.sources
    ADD COLUMN IF NOT EXISTS remarks Array(LowCardinality(String)) AFTER last_seq;
