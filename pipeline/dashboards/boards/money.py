"""How many GPUs avoidable prefill takes, what it costs, and what caches save."""

from __future__ import annotations

from pipeline.dashboards.boards.causes import CAUSE_COLOURS
from pipeline.dashboards.panel import Panel
from pipeline.dashboards.queries import MODELS, RANGE, SERIES, TOP

LOST_CAUSES = {
    "routing": ("peer",),
    "routing or capacity": ("peer_and_evicted",),
    "capacity": ("evicted", "evicted_elsewhere"),
    "warm-up": ("cleared",),
    "receivers only": ("at_receivers",),
}
"""{what would have avoided it: causes of `prefill_costs`}."""
RATES = (
    "GPU-seconds per token are measured by the engines' counters, else assumed from `[[models]]`. "
    "Estimates tend to be high (docs/figures.md)."
)
NO_RATE = (
    "No rate is known: give `gpus_per_replica` in `[[models]]`, and `metrics_url` of the replicas or "
    "`prefill_tokens_per_second`."
)

COLOURS_ASSUMED = {
    "routing": "#9fc0ee",
    "routing or capacity": "#b7d3ee",
    "capacity": "#ecc195",
    "warm-up": "#c7b5eb",
    "receivers only": "#dcd3f0",
}
"""Paler than CAUSE_COLOURS."""
_LOST = [each for causes in LOST_CAUSES.values() for each in causes]
_AVOIDED_BY = [name for name, causes in LOST_CAUSES.items() for _ in causes]

GPUS_LOST = Panel(
    id="fleet-gpus-lost",
    title="GPUs busy with avoidable prefill",
    description="GPUs (GPU-seconds per second) spent on what some replica had computed before, by what "
    f"would have avoided it; paler: at an assumed rate. {RATES} Replicas without a rate are left out.",
    unit="GPUs",
    kind="stacked",
    named_by="avoided_by",
    width=24,
    empty=NO_RATE,
    sql=f"""
SELECT
    time,
    concat(transform(cause, {_LOST}, {_AVOIDED_BY}, ''), ', ', toString(rate_basis)) AS avoided_by,
    sum(part.gpu_seconds) / any(width) AS gpus
FROM prefill_costs_series({SERIES}) AS part
WHERE kind = 'lost' AND isNotNull(gpu_seconds) AND {MODELS}
GROUP BY time, avoided_by
ORDER BY time, min(indexOf({_LOST}, cause)), avoided_by DESC""",
    colours={
        f"{cause}, {basis}": colours[cause]
        for basis, colours in (("measured", CAUSE_COLOURS), ("assumed", COLOURS_ASSUMED))
        for cause in LOST_CAUSES
    },
)

COSTS = Panel(
    id="fleet-costs",
    title="What prefill cost, and what caches saved",
    description=f"GPU-hours and money of the range, by model and tenant: the {TOP} that lost most. Lost: "
    "some replica had computed it before. Saved: found on the GPU, by the engines' counters, or fetched from "
    f"a lower tier. {RATES} Tokens without a rate or a price are left out; the last column but one has "
    "their share.",
    unit="GPU-hours",
    kind="table",
    width=24,
    sql=f"""
SELECT
    model,
    tenant,
    round(sumIf(part.gpu_seconds, kind = 'lost') / 3600, 2) AS `GPU-hours lost`,
    round(sumIf(part.gpu_seconds, cause = 'gpu') / 3600, 2) AS `GPU-hours saved by hits`,
    round(sumIf(part.gpu_seconds, cause = 'lower_tier') / 3600, 2) AS `GPU-hours saved by lower tiers`,
    round(sumIf(part.cost, kind = 'lost'), 2) AS `cost of the lost`,
    round(sumIf(part.cost, kind = 'saved'), 2) AS `cost saved`,
    currency,
    toString(max(part.rate_basis)) AS rate,
    round(100 * sum(part.unpriced_tokens) / nullIf(sum(part.tokens), 0), 1) AS `% without a cost`,
    toString(max(part.trust)) AS trust
FROM prefill_costs({RANGE}) AS part
WHERE {MODELS}
GROUP BY model, tenant, currency
HAVING sum(part.tokens) > 0
ORDER BY sumIf(part.tokens, kind = 'lost') DESC, model, tenant, currency
LIMIT {TOP}""",
)
