-- Recomputes stream_health_1m and stream_health_1h for the given periods; safe to run at any time and as often as you like.
-- periods: starts of minutes or hours; from: the first, to: the end of the last (exclusive).
INSERT INTO {database}.stream_health_{grain}
(
    window, model, replica, dp_rank, batches, events, duplicate_batches, gap_batches, replayed_batches,
    lost_batches, undecodable_events, restarts, incarnation, last_seq, last_batch_at, connected, lag_seconds,
    drift_blocks, drift_since, trust, trust_since, windows, version
)
SELECT
    {start}(fine.window) AS window,
    fine.model,
    fine.replica,
    fine.dp_rank,
    sum(fine.batches) AS batches,
    sum(fine.events) AS events,
    sum(fine.duplicate_batches) AS duplicate_batches,
    sum(fine.gap_batches) AS gap_batches,
    sum(fine.replayed_batches) AS replayed_batches,
    sum(fine.lost_batches) AS lost_batches,
    sum(fine.undecodable_events) AS undecodable_events,
    sum(fine.restarts) AS restarts,
    argMax(fine.incarnation, fine.window) AS incarnation,
    argMax(fine.last_seq, fine.window) AS last_seq,
    tupleElement(argMax(tuple(fine.last_batch_at), fine.window), 1) AS last_batch_at,
    min(fine.connected) AS connected,
    max(fine.lag_seconds) AS lag_seconds,
    max(fine.drift_blocks) AS drift_blocks,
    tupleElement(argMax(tuple(fine.drift_since), fine.window), 1) AS drift_since,
    max(fine.trust) AS trust,
    argMax(fine.trust_since, (fine.trust, fine.window)) AS trust_since,
    {windows} AS windows,
    {version:UInt64} AS version
FROM {database}.stream_health_{finer} AS fine FINAL
WHERE fine.window >= {from:DateTime('UTC')}
    AND fine.window < {to:DateTime('UTC')}
    AND toStartOfHour(fine.window) >= toStartOfHour({from:DateTime('UTC')})
    AND toStartOfHour(fine.window) < {to:DateTime('UTC')}
    AND has({periods:Array(DateTime('UTC'))}, {start}(fine.window))
GROUP BY window, fine.model, fine.replica, fine.dp_rank
