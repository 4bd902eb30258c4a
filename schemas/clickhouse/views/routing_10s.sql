-- Routers' choices per window and replica chosen: those judged, those not the best match, tokens of both matches and
-- lost between them, and those judged by a stale index.
CREATE VIEW {database}.routing_10s AS
SELECT
    toDateTime(intDiv(toUnixTimestamp(one.time), 10) * 10, 'UTC') AS window,
    one.model AS model,
    one.tenant AS tenant,
    one.replica AS replica,
    count() AS choices,
    countIf(one.not_judged = '') AS judged_choices,
    countIf(one.chosen_tokens < one.best_tokens) AS worse_choices,
    sum(one.best_tokens) AS best_tokens,
    sum(one.chosen_tokens) AS chosen_tokens,
    best_tokens - chosen_tokens AS lost_tokens,
    countIf(one.stale) AS stale_choices,
    sumIf(one.best_tokens - one.chosen_tokens, one.stale) AS stale_lost_tokens,
    countIf(one.not_judged = 'unknown_replica') AS unknown_replica_choices,
    countIf(one.not_judged = 'share') AS share_choices,
    countIf(one.upper_bound) AS upper_bound_choices,
    max(one.trust) AS trust
FROM {database}.choices AS one FINAL
WHERE one.time >= {from}
    AND one.time < {to} + INTERVAL 10 SECOND
    AND toStartOfHour(one.time) >= toStartOfHour({from})
    AND toStartOfHour(one.time) <= {to} + INTERVAL 10 SECOND
    AND intDiv(toUnixTimestamp(one.time), 10) * 10 >= toUnixTimestamp({from})
    AND intDiv(toUnixTimestamp(one.time), 10) * 10 <= toUnixTimestamp({to})
GROUP BY window, model, tenant, replica
