-- Rows of ten seconds: the winning version of each.
CREATE VIEW {database}.fills AS
SELECT *
FROM {database}.fills_10s FINAL
WHERE {bounds};

-- fills_series of windows of `seconds`.
CREATE VIEW {database}.fills_windows AS
-- for 10s, 1m, 1h
SELECT
    window,
    intDiv({step:UInt32} + {rest}, {length}) * {length} AS width,
    toDateTime(intDiv(toUnixTimestamp(window), width) * width, 'UTC') AS time,
    hash_domain, model, replica, dp_rank, group_idx, filled_blocks, filled_tokens,
    toUInt64(filled_tokens - promoted_tokens - transferred_tokens - generated_tokens) AS prefill_tokens, promoted_tokens,
    transferred_tokens, transferred_again_tokens, generated_tokens, peer_tokens, peer_and_evicted_tokens, evicted_tokens,
    evicted_elsewhere_tokens, cleared_tokens, cold_tokens, unknown_tokens,
    toUInt64(peer_tokens - peer_at_receivers_tokens) AS routable_peer_tokens,
    toUInt64(evicted_elsewhere_tokens - evicted_at_receivers_tokens) AS keepable_elsewhere_tokens,
    toUInt64(peer_at_receivers_tokens + evicted_at_receivers_tokens) AS at_receivers_tokens,
    regret_hist, sampled_one_in, trust
FROM {database}.fills_{grain} FINAL
WHERE {seconds:UInt32} = {length}
    AND {bounds}
-- end
;

-- As without `_series`, from the table that fits the range. `time` is the start of the point of `width` seconds that a
-- window belongs to. `prefill_tokens` are those filled that were computed for prompts, or may have been: not those that
-- came from a lower tier or by transfer, nor those that decoding completed, as far as the stream tells.
-- `at_receivers_tokens` are those of `peer_tokens` and `evicted_elsewhere_tokens` that only sources held or had evicted
-- which receive KV, and `routable_peer_tokens` and `keepable_elsewhere_tokens` the others.
CREATE VIEW {database}.fills_series AS
SELECT *
FROM {database}.fills_windows({range}, step = {step:UInt32}, seconds = {finest});
