"""The board of one model: its replicas compared, lifetimes, regret and the gain of more cache."""

from __future__ import annotations

from pipeline.dashboards.boards.causes import CAUSE_COLOURS, causes, filled_by_cause
from pipeline.dashboards.boards.choices import SHARES, TOKENS
from pipeline.dashboards.boards.restarts import restarts
from pipeline.dashboards.panel import Board, Panel, Section, Threshold
from pipeline.dashboards.queries import CHOSEN, MAIN_GROUPS, RANGE, SERIES, TOP, or_others, with_top

FILLS = filled_by_cause("model-fills", CHOSEN)

BY_REPLICA = Panel(
    id="model-replicas",
    title="Fills by replica and cause",
    description=f"Tokens filled in the range by cause, for the {TOP} replicas that filled most "
    "and all others together.",
    unit="tokens",
    kind="bar",
    width=12,
    names="replica",
    sql=f"""
{with_top("replica", f"fills_series({SERIES})", f"{CHOSEN} AND {MAIN_GROUPS}", "sum(filled_tokens)")}
SELECT {or_others("replica")} AS series,{causes()}
FROM fills_series({SERIES})
WHERE {CHOSEN} AND {MAIN_GROUPS}
GROUP BY series
ORDER BY series = 'others', sum(filled_tokens) DESC, series""",
    colours=CAUSE_COLOURS,
)

CURVE_STEPS = 40
"""Length to which curves are extended: a curve ends where it saves all it can, and stays there."""
CAPACITY_GAIN = Panel(
    id="model-capacity-gain",
    title="What more cache would save",
    description="At least this share of the prefill would have been hits if every replica had this many "
    "more tokens of cache. Beyond the knee more cache saves less. At most: what was filled again after an "
    "eviction, and what is of unknown cause; of hybrid engines only this is known. Bytes need the model's "
    f"`kv_bytes_per_token`. Leaves out what saves less than 1 %. The {TOP} models with most prefill.",
    unit="share",
    kind="curve",
    width=12,
    height=9,
    names="model",
    empty="By these figures, more cache would have saved less than a hundredth of the prefill.",
    sql=f"""
WITH curves AS
(
    SELECT
        model,
        max(token_bytes) AS bytes,
        max(length(curve)) AS longest,
        sumForEach(arrayResize(curve, {CURVE_STEPS}, curve[-1])) AS whole
    FROM
    (
        SELECT
            model,
            max(extra_bytes / extra_tokens) AS token_bytes,
            arrayMap(point -> point.2, arraySort(groupArray((extra_tokens, saved_tokens)))) AS curve
        FROM capacity_gain_series({RANGE})
        WHERE {CHOSEN}
        GROUP BY hash_domain, model, replica
    )
    GROUP BY model
),
known AS
(
    SELECT
        fills.model AS model, total, fills.most AS most, bytes, longest, whole,
        if(longest = 0, [], arraySlice(whole, 1, longest)) AS points
    FROM
    (
        SELECT
            model,
            sum(prefill_tokens) AS total,
            sum(evicted_tokens + peer_and_evicted_tokens) AS again,
            sum(evicted_tokens + peer_and_evicted_tokens + unknown_tokens) AS most
        FROM hit_potential_series({RANGE})
        WHERE {CHOSEN}
        GROUP BY model
        HAVING total > 0 AND again >= 0.01 * total
        ORDER BY total DESC, model
        LIMIT {TOP}
    ) AS fills
    LEFT JOIN curves ON curves.model = fills.model
)
SELECT
    model,
    if(empty(points), NULL, toUInt64(exp2(step - 1))) AS `more tokens a replica`,
    if(empty(points), NULL, toUInt64(exp2(step - 1) * bytes)) AS `in bytes`,
    if(empty(points), NULL, saved) AS `tokens saved`,
    round(100 * `tokens saved` / total, 1) AS `% of the prefill`,
    round(100 * most / total, 1) AS `at most %`,
    row_number() OVER
    (
        PARTITION BY model
        ORDER BY saved / whole[greatest(longest, 1)] - exp2(step - longest) DESC, step
    ) = 1 AS knee
FROM known
ARRAY JOIN if(empty(points), [toUInt64(0)], points) AS saved, range(1, greatest(longest, 1) + 1) AS step
WHERE empty(points) OR saved >= 0.01 * total
ORDER BY model, `more tokens a replica`
LIMIT {TOP * CURVE_STEPS}""",
)

HEAT = """
SELECT time, exp2(toInt32(bucket) - 11) AS bucket, toFloat64(blocks) AS value
FROM
(
    SELECT time, sumForEach({histogram}) AS counts
    FROM {view}
    WHERE {chosen}
    GROUP BY time
)
ARRAY JOIN counts AS blocks, arrayEnumerate(counts) AS bucket
ORDER BY time, bucket"""
"""Of a log2 histogram: element j, counted from 1, ends at 2**(j - 11) seconds (`schemas.rows`)."""

LIFETIMES = Panel(
    id="model-lifetimes",
    title="Lifetime of evicted blocks",
    description="Distinct evicted blocks, by how long they had been resident. Short under pressure: the "
    "cache turns over before prefixes come again.",
    unit="seconds",
    kind="heatmap",
    width=12,
    sql=HEAT.format(histogram="lifetime_hist", view=f"flow_series({SERIES})", chosen=CHOSEN),
)

REGRET = Panel(
    id="model-regret",
    title="Time from eviction to re-use",
    description="Blocks filled again after an eviction, here or on another replica, by the time between. "
    "Slightly more cache would have kept the low ones.",
    unit="seconds",
    kind="heatmap",
    width=12,
    sql=HEAT.format(
        histogram="regret_hist", view=f"fills_series({SERIES})", chosen=f"{CHOSEN} AND {MAIN_GROUPS}"
    ),
)

FULLNESS = Panel(
    id="model-fullness",
    title="GPU cache in use by replica",
    description=f"Cached entries as a share of the capacity, for the {TOP} fullest replicas that report one "
    "and all others together. Red, above 100 %: removals are missing (drift).",
    unit="share",
    kind="timeseries",
    width=12,
    named_by="series",
    names="replica",
    thresholds=(Threshold(1, "red"),),
    sql=f"""
WITH per_source AS
(
    SELECT time, replica, entries, capacity_blocks
    FROM held_series({SERIES})
    WHERE medium = 'gpu' AND capacity_blocks > 0 AND {CHOSEN}
),
top AS
(
    SELECT replica
    FROM per_source
    GROUP BY replica
    ORDER BY sum(entries) / sum(capacity_blocks) DESC, replica
    LIMIT {TOP}
)
SELECT time, {or_others("replica")} AS series, sum(entries) / sum(capacity_blocks) AS full
FROM per_source
GROUP BY time, series
ORDER BY time, series""",
)

BOARD = Board(
    id="model",
    title="Model",
    description="One model: its replicas compared, how long blocks live, which losses hurt, what more cache "
    "buys.",
    choices=("model", "role", "replica"),
    sections=(
        Section("Hit potential", (FILLS, BY_REPLICA, CAPACITY_GAIN, REGRET)),
        Section("Routing", (SHARES, TOKENS)),
        Section("Cache", (FULLNESS, LIFETIMES)),
    ),
    annotations=(restarts("restarts", CHOSEN),),
)
