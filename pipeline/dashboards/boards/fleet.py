"""The board of the whole fleet: cached tokens, losses, possible savings, and how sure these figures are."""

from __future__ import annotations

from pipeline.dashboards.boards.advice import ANSWER, FINDINGS
from pipeline.dashboards.boards.causes import AVOIDABLE, CAUSE_COLOURS, filled_by_cause
from pipeline.dashboards.boards.flow import FLOW
from pipeline.dashboards.boards.lanes import FILLED_AGAIN, HITS, USE
from pipeline.dashboards.boards.money import COSTS, GPUS_LOST
from pipeline.dashboards.boards.restarts import restarts
from pipeline.dashboards.panel import Board, Panel, Section, Threshold
from pipeline.dashboards.queries import (
    AT_THE_END,
    FINEST,
    LATEST,
    MODELS,
    RANGE,
    SERIES,
    TOP,
    rates_by_model,
    tokens_by_medium,
)

TRUST_COLOURS = {"complete": "#2f9e6e", "partial": "#d9a514", "degraded": "#d1495b", "never heard": "#8b93a1"}
MEDIUM_COLOURS = {
    f"{bound}{medium}{known}": colour
    for medium, colour in {"gpu": "#27a5b5", "cpu": "#5468c9", "disk": "#8a8f2e"}.items()
    for bound in ("", "≤ ", "≥ ", "≈ ")
    for known in ("", ", as far as known")
}
OWNER_COLOURS = {"1": "#b7d0f0", "2": "#7fabe3", "3": "#3f7fdb", "4 to 7": "#8f6bd6", "8 and more": "#5d3b9c"}

HEARD = "if(last_seq < 0, 'never heard', toString(trust))"
"""What is known of a stream: its trust, once its engine has sent a batch."""

SOURCES_NOW = Panel(
    id="fleet-sources",
    title="Event streams",
    description="Streams with data in the last minute of the range: complete (seen from the engine's first "
    "batch or since a clear), partial (kvlens started after the engine), degraded (batches or events are "
    "lost for good), never heard (its engine has sent no batch yet). Exact.",
    unit="sources",
    kind="stat",
    width=12,
    height=4,
    sql=f"""
SELECT
    countIf(trust = 'complete') AS complete,
    countIf(trust = 'partial') AS partial,
    countIf(trust = 'degraded') AS degraded,
    countIf(trust = 'never heard') AS `never heard`
FROM
(
    SELECT replica, dp_rank, argMax({HEARD}, window) AS trust
    FROM stream_health({LATEST})
    WHERE {MODELS}
    GROUP BY replica, dp_rank
)""",
    colours=TRUST_COLOURS,
)

GPU_FULL = Panel(
    id="fleet-gpu-full",
    title="GPU cache in use",
    description="How much of the room for KV cache holds a cached prefix, over the ranks whose engine "
    "reports its capacity, weighted by their tokens. Engines keep cached blocks until they need the room: "
    "a busy fleet is close to 100 %. Exact where streams are complete; a rank with more blocks than it has "
    "room for counts as full.",
    unit="share",
    kind="stat",
    width=12,
    height=3,
    sql=f"""
SELECT sum(capacity_tokens * least(1, entries / capacity_blocks)) / nullIf(sum(capacity_tokens), 0) AS full
FROM
(
    SELECT entries, capacity_blocks, capacity_tokens
    FROM held({LATEST})
    WHERE medium = 'gpu' AND capacity_blocks > 0 AND {MODELS}
    ORDER BY window DESC
    LIMIT 1 BY model, replica, dp_rank
)""",
)

EVICTED_NOW = Panel(
    id="fleet-evicted-now",
    title="Evicted",
    description="Tokens per second of blocks whose last copy left the GPU, over the last minute. Exact "
    "where streams are complete.",
    unit="tokens/s",
    kind="stat",
    width=12,
    height=3,
    sql=f"""
SELECT sum(evicted_tokens) / 60 AS evicted
FROM flow(
    from = toUnixTimestamp({{to:DateTime('UTC')}}) - 79, to = toUnixTimestamp({{to:DateTime('UTC')}}) - 20
)
WHERE medium = 'gpu' AND {MODELS}""",
)
"""Of six whole windows, the newest of which ended ten seconds ago or more: its rows have come."""

FRESHNESS = Panel(
    id="fleet-freshness",
    title="Data freshness",
    description="How far the newest window of any source is behind the end of the range. More than half a "
    "minute: engines, connector, Kafka or worker have stopped. Without rows of the last half hour, they are "
    "at least this old.",
    unit="seconds",
    kind="stat",
    width=12,
    height=4,
    thresholds=(Threshold(0, "green"), Threshold(30, "yellow"), Threshold(120, "red")),
    sql=f"""
SELECT
    if(count() = 0, NULL, greatest(0, dateDiff('second', max((exact, end)).2, {{to:DateTime('UTC')}}))) AS age
FROM latest_streams({RANGE}, seconds = ({FINEST}))
WHERE {MODELS}""",
)

HELD_EXPLAINED = (
    "≤: at most, as a hybrid engine or a tier does not say what leaves, or more was counted "
    "than there is room for. ≥: at least, as an engine announced prompts again since its last "
    "clear. ≈: both. No figure, or as far as known: an engine does not say how many tokens a "
    "block has."
)
OCCUPANCY = Panel(
    id="fleet-occupancy",
    title="Cached tokens by medium",
    description="Distinct resident tokens: once per rank and medium, however many copies, granularities or "
    "KV-cache groups there are, and no more on a GPU than it has room for. "
    f"{HELD_EXPLAINED}",
    unit="tokens",
    kind="stacked",
    named_by="medium",
    sql=tokens_by_medium(MODELS),
    colours=MEDIUM_COLOURS,
)

EVICTION = Panel(
    id="fleet-eviction",
    title="Evicted tokens by model",
    description="Tokens of blocks whose last copy left a medium because the engine needed the room, not by "
    f"clears and restarts. The {TOP} models that lose most, and all others together.",
    unit="tokens/s",
    kind="timeseries",
    named_by="series",
    names="model",
    sql=rates_by_model("flow_series", "evicted_tokens", "evicted", MODELS),
)

TRUST = Panel(
    id="fleet-trust",
    title="Completeness of the data",
    description="Event streams by trust. Complete: exact; partial: counts too little until the engine "
    "clears its cache or restarts; degraded: may count too much or too little; never heard: counts nothing.",
    unit="sources",
    kind="stacked",
    named_by="trust",
    sql=f"""
SELECT time, if(heard, toString(worst), 'never heard') AS trust, uniqExact(replica, dp_rank) AS sources
FROM
(
    SELECT time, replica, dp_rank, max(trust) AS worst, max(last_seq) >= 0 AS heard
    FROM stream_health_series({SERIES})
    WHERE {MODELS}
    GROUP BY time, replica, dp_rank
)
GROUP BY time, trust
ORDER BY time, trust""",
    colours=TRUST_COLOURS,
)

HIT_COLOURS = {
    "actual": "#6c7fa8",
    "more cache": CAUSE_COLOURS["capacity"],
    "and better routing": CAUSE_COLOURS["routing"],
}
FILLS = filled_by_cause("fleet-fills", MODELS, width=16, height=9)

HIT_RATES = Panel(
    id="fleet-hit-rates",
    title="Hit rate: actual and possible",
    description="Actual: hits over queries as the engines count them. More cache: if each replica had kept "
    "what it lost, by eviction, clear or restart. And better routing: if requests had found every block that "
    "any replica holds or lost within the horizon. The last two are upper bounds (docs/figures.md). The "
    f"{TOP} models with most queries, and all others together.",
    unit="share",
    kind="bar",
    width=8,
    names="model",
    height=9,
    sql=f"""
SELECT
    if(place <= {TOP}, model, 'others') AS series,
    sum(hit) / nullIf(sum(queried), 0) AS actual,
    sum(own_ideal) / nullIf(sum(queried), 0) AS `more cache`,
    sum(ideal) / nullIf(sum(queried), 0) AS `and better routing`
FROM
(
    SELECT
        model,
        sum(queried_tokens) AS queried,
        sum(hit_tokens) AS hit,
        sum(own_ideal_hit_rate * queried_tokens) AS own_ideal,
        sum(ideal_hit_rate * queried_tokens) AS ideal,
        row_number() OVER (ORDER BY queried DESC, model) AS place
    FROM hit_potential_series({RANGE})
    WHERE {MODELS} AND queried_tokens > 0
    GROUP BY model
)
GROUP BY series
ORDER BY series = 'others', series""",
    colours=HIT_COLOURS,
)

REDUNDANCY = Panel(
    id="fleet-redundancy",
    title="Blocks by number of replicas that hold them",
    description="Distinct GPU blocks, by how many replicas hold a copy; where both some that receive KV and "
    "others do, one less: a transfer needs that copy. Many owners are good for hot prefixes; of everything: "
    "routing spreads work that one replica could serve.",
    unit="blocks",
    kind="stacked",
    sql=f"""
SELECT
    time,
    sum(owners_1) / uniqExact(window) AS `1`,
    sum(owners_2) / uniqExact(window) AS `2`,
    sum(owners_3) / uniqExact(window) AS `3`,
    sum(owners_4_7) / uniqExact(window) AS `4 to 7`,
    sum(owners_8_up) / uniqExact(window) AS `8 and more`
FROM redundancy_series({SERIES})
WHERE medium = 'gpu' AND {MODELS}
GROUP BY time
ORDER BY time""",
    colours=OWNER_COLOURS,
)

MOST_REPLICAS = 5000
REPLICAS = Panel(
    id="fleet-replicas",
    title="Replicas",
    description="Every replica in the range, those with most avoidable prefill first, and what would have "
    "avoided it, as shares of the prefill that add up to 100, as in Fills by avoidable cause. Avoidable is "
    "no more than what the engine counts as computed, which may be less than the shares say. "
    "Unknown until: fills until then may be of unknown cause, as the stream was incomplete within "
    "the hour (`fleet.horizon_seconds`) before the end of the range. No figures: it filled "
    "nothing; never heard: it has sent no batch yet.",
    unit="tokens",
    kind="table",
    width=24,
    height=9,
    sql=f"""
SELECT
    model,
    replica,
    prefill_tokens AS prefill,
    avoidable_tokens AS avoidable,
    round(100 * (routing_share - routing_and_capacity_share), 1) AS `routing %`,
    round(100 * routing_and_capacity_share, 1) AS `routing or capacity %`,
    round(100 * (capacity_share - routing_and_capacity_share), 1) AS `capacity %`,
    round(100 * warm_up_share, 1) AS `warm-up %`,
    round(100 * at_receivers_share, 1) AS `receivers only %`,
    round(100 * cold_share, 1) AS `cold %`,
    round(100 * unknown_share, 1) AS `unknown %`,
    round(100 * actual_hit_rate, 1) AS `hit rate %`,
    promoted_tokens AS `lower tier`,
    transferred_tokens AS transferred,
    generated_tokens AS generated,
    nullIf(history.until, toDateTime(0, 'UTC')) AS `unknown until`,
    if(filled_tokens = 0, known_trust, toString(figures.trust)) AS trust
FROM
(
    SELECT *
    FROM
    (
        SELECT model, replica, if(max(heard), toString(maxIf(trust, heard)), 'never heard') AS known_trust
        FROM
        (
            SELECT model, replica, trust, true AS heard
            FROM sources FINAL
            WHERE opened_at <= {{to:DateTime('UTC')}}
                AND (closed_at IS NULL OR closed_at >= {{from:DateTime('UTC')}})
            UNION ALL
            SELECT model, replica, trust, false AS heard
            FROM stream_health({LATEST})
            WHERE last_seq < 0
        )
        GROUP BY model, replica
    ) AS known
    FULL OUTER JOIN hit_potential_series({RANGE}) AS potential USING (model, replica)
) AS figures
LEFT JOIN
(
    SELECT model, replica, max(unknown_until) AS until
    FROM lost_history({AT_THE_END})
    GROUP BY model, replica
) AS history USING (model, replica)
WHERE {MODELS}
ORDER BY avoidable DESC, model, replica
LIMIT {MOST_REPLICAS}""",
)

HOT_PREFIXES = Panel(
    id="fleet-hot-prefixes",
    title="Hot prefixes",
    description=f"Prompts that begin alike, by the hash of their first block: the {TOP} with most copies "
    f"beyond the first at any time, and the {TOP} with most tokens filled again although some "
    "replica has or had them (% of refills: of all in the hash domain). Names: `[[prefixes]]`. "
    "Route duplicated ones to fewer replicas; keep refilled ones cached, or send their requests "
    "to the replicas that the index names. Most replicas: at a time. Blocks deep: up to the last "
    "block shared or filled again. Lower bounds; minutes and hours keep the 100 with most of each.",
    unit="tokens",
    kind="table",
    width=24,
    height=9,
    sql=f"""
SELECT
    model,
    first_block AS `first block`,
    names.name AS name,
    lora AS LoRA,
    duplicated_tokens AS duplicated,
    shared_tokens AS shared,
    refilled_tokens AS refilled,
    round(100 * refilled_tokens / nullIf(avoidable_tokens, 0), 1) AS `% of refills`,
    owners AS `most replicas`,
    depth_blocks AS `blocks deep`,
    toString(trust) AS trust
FROM
(
    SELECT
        *,
        row_number() OVER (ORDER BY duplicated_tokens DESC, first_block) AS by_duplicated,
        row_number() OVER (ORDER BY refilled_tokens DESC, first_block) AS by_refilled
    FROM hot_prefixes_series({RANGE})
    WHERE {MODELS}
) AS prefixes
LEFT JOIN
(
    SELECT hash_domain, group_idx, {AVOIDABLE} AS avoidable_tokens
    FROM fills_series({SERIES})
    WHERE {MODELS}
    GROUP BY hash_domain, group_idx
) AS fills USING (hash_domain, group_idx)
LEFT JOIN named_prefixes AS names USING (first_block)
WHERE by_duplicated <= {TOP} OR by_refilled <= {TOP}
ORDER BY duplicated_tokens DESC, refilled_tokens DESC, first_block""",
)

BOARD = Board(
    id="fleet",
    title="Fleet",
    description="What is cached, what is lost and what could be saved, for all replicas.",
    choices=("model",),
    sections=(
        Section("Answer", (ANSWER, FINDINGS)),
        Section("Hit potential", (FLOW, FILLS, HIT_RATES, REPLICAS)),
        Section("Replicas over time", (FILLED_AGAIN, HITS, USE)),
        Section("Cost", (GPUS_LOST, COSTS)),
        Section("Cache", (GPU_FULL, EVICTED_NOW, OCCUPANCY, REDUNDANCY, HOT_PREFIXES, EVICTION, TRUST)),
    ),
    annotations=(restarts("fleet-restarts", MODELS),),
)
