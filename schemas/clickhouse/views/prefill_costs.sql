-- prefill_costs_series added up, by tenant, model, replica and cause. `gpu_seconds` and `cost` leave out tokens without a
-- rate (`unpriced_tokens`: without a cost), and are NULL where all are; `rate_basis` is the worst of the parts.
CREATE VIEW {database}.prefill_costs AS
SELECT
    tenant,
    model,
    replica,
    kind,
    cause,
    sum(parts.tokens) AS tokens,
    sum(parts.gpu_seconds) AS gpu_seconds,
    sum(parts.cost) AS cost,
    sumIf(parts.tokens, isNull(parts.gpu_seconds)) AS tokens_without_rate,
    sumIf(parts.tokens, isNull(parts.cost)) AS unpriced_tokens,
    currency,
    if(sum(parts.tokens) = 0, max(parts.rate_basis), maxIf(parts.rate_basis, parts.tokens > 0)) AS rate_basis,
    max(parts.sampled_one_in) AS sampled_one_in,
    max(parts.trust) AS trust
FROM {database}.prefill_costs_series({range}, step = 86400) AS parts
GROUP BY tenant, model, replica, kind, cause, currency
