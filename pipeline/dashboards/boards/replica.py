"""The board of single replicas: media and groups, stores and losses, restarts and clears."""

from __future__ import annotations

from pipeline.dashboards.boards.causes import CAUSE_COLOURS
from pipeline.dashboards.boards.fleet import HELD_EXPLAINED, MEDIUM_COLOURS
from pipeline.dashboards.boards.restarts import restarts
from pipeline.dashboards.panel import Board, Panel, Section
from pipeline.dashboards.queries import CHOSEN, SERIES, tokens_by_medium

OCCUPANCY = Panel(
    id="replica-occupancy",
    title="Cached tokens by medium",
    description="Distinct resident tokens of the chosen replicas. A drop to zero is a clear or a restart. "
    f"{HELD_EXPLAINED}",
    unit="tokens",
    kind="stacked",
    width=12,
    named_by="medium",
    sql=tokens_by_medium(CHOSEN),
    colours=MEDIUM_COLOURS,
)

GPU_BLOCKS = Panel(
    id="replica-gpu-blocks",
    title="GPU blocks against capacity",
    description="Physical blocks on the GPU that hold a cached prefix (in use), how many of them differ "
    "(distinct), and the capacity that the engine reports. Beyond capacity: blocks counted without room, as "
    "removals are missing (drift); in use and distinct leave them out, and are lower bounds where a prompt "
    "was announced again since the last clear (`at_least`).",
    unit="blocks",
    kind="timeseries",
    width=12,
    sql=f"""
SELECT
    time,
    sum(entries - beyond) / uniqExact(window) AS `in use`,
    sum(least(blocks, entries - beyond)) / uniqExact(window) AS distinct,
    sum(capacity_blocks) / uniqExact(window) AS capacity,
    nullIf(sum(beyond) / uniqExact(window), 0) AS `beyond capacity`
FROM
(
    SELECT
        *,
        if(capacity_blocks > 0 AND entries > capacity_blocks, entries - capacity_blocks, 0) AS beyond
    FROM held_series({SERIES})
    WHERE medium = 'gpu' AND {CHOSEN}
)
GROUP BY time
ORDER BY time""",
    colours={"beyond capacity": "#d1495b"},
)

GROUPS = Panel(
    id="replica-groups",
    title="Blocks in use by group and size",
    description="Physical blocks by medium, KV-cache group (layers that share blocks) and tokens of a block. "
    "Hybrid engines announce tokens in several groups or sizes; panels in tokens count them once.",
    unit="blocks",
    kind="timeseries",
    width=12,
    named_by="series",
    sql=f"""
SELECT
    time,
    concat(
        medium, ', group ', toString(group_idx), ', ',
        if(block_size = 0, 'tokens not known', concat(toString(block_size), ' tokens a block'))
    ) AS series,
    sum(entries) / uniqExact(window) AS blocks
FROM occupancy_series({SERIES})
WHERE {CHOSEN}
GROUP BY time, series
ORDER BY time, series""",
)

FLOW = Panel(
    id="replica-flow",
    title="Stored, evicted, cleared",
    description="Copies stored, distinct blocks evicted for room, copies lost by a clear or restart.",
    unit="blocks/s",
    kind="timeseries",
    width=12,
    sql=f"""
SELECT
    time,
    sum(stored_blocks) / any(width) AS stored,
    sum(evicted_blocks) / any(width) AS evicted,
    sum(cleared_blocks) / any(width) AS cleared
FROM flow_series({SERIES})
WHERE {CHOSEN}
GROUP BY time
ORDER BY time""",
    colours={"stored": "#6c7fa8", "evicted": CAUSE_COLOURS["capacity"], "cleared": CAUSE_COLOURS["warm-up"]},
)

BALANCE = Panel(
    id="replica-balance",
    title="What filled the cache, and what the engine counted",
    description="Tokens filled in the range, beside what the engine's counters say of them: computed for "
    "prompts, transferred, reloaded from lower tiers, generated; empty: it has no such counter. Left over: "
    "below zero what filled no whole block, above zero what the engine does not count, such as what it "
    "computes again after a preemption. Transferred and generated, by events: fills taken for these.",
    unit="tokens",
    kind="table",
    width=24,
    empty="kvlens reads the metrics of none of these engines, or they do not count what they compute.",
    sql=f"""
SELECT
    model,
    replica,
    sum(filled_tokens) AS filled,
    sum(computed_tokens) AS computed,
    sum(balance.transferred_tokens) AS transferred,
    sum(reloaded_tokens) AS reloaded,
    sum(generated_tokens) AS generated,
    sum(left_over_tokens) AS `left over`,
    sum(claimed_tokens) AS `transferred, by events`,
    sum(decoded_tokens) AS `generated, by events`
FROM replica_balance_series({SERIES}) AS balance
WHERE {CHOSEN}
GROUP BY model, replica
ORDER BY filled DESC, model, replica
LIMIT 100""",
)

NO_OBJECTS = "No LMCache server reports to a connector here (`[lmcache]`, docs/engines.md)."

TIERS = Panel(
    id="replica-tiers",
    title="Tiers in bytes, of their capacity",
    description="Bytes of objects of LMCache's servers and storage, of all models, as a share of the "
    "capacity that they declare; storage without one is not shown.",
    unit="share",
    kind="timeseries",
    width=12,
    named_by="tier",
    empty=NO_OBJECTS,
    sql=f"""
SELECT time, concat(replica, ' ', medium) AS tier, avg(bytes / capacity_bytes) AS held
FROM object_series({SERIES})
WHERE {CHOSEN} AND capacity_bytes > 0
GROUP BY time, tier
ORDER BY time, tier""",
)

USES = Panel(
    id="replica-uses",
    title="Objects stored and used",
    description="Objects per second on LMCache's tiers: stored, accessed, and of these the hits. An access "
    "of most storage is a hit, one of memory is not, as requests also touch it when they end "
    "(docs/figures.md, Objects).",
    unit="blocks/s",
    kind="timeseries",
    width=12,
    empty=NO_OBJECTS,
    sql=f"""
SELECT
    time,
    sum(stored_objects) / any(width) AS stored,
    sum(accesses) / any(width) AS accessed,
    sum(ifNull(hits, 0)) / any(width) AS hits
FROM object_series({SERIES})
WHERE {CHOSEN}
GROUP BY time
ORDER BY time""",
)

SESSIONS = Panel(
    id="replica-lives",
    title="Engine sessions",
    description="Every session of an engine process that kvlens saw, newest first, and how it ended. "
    "Events as: how the engine writes them (docs/engines.md). First and last batch: by its own numbers.",
    unit="sources",
    kind="table",
    width=24,
    sql=f"""
SELECT
    replica, dp_rank AS rank, opened_at AS opened, closed_at AS closed, closed_reason AS ended_by,
    role, engine, wire_era AS `events as`, first_seq AS `first batch`, last_seq AS `last batch`,
    toString(trust) AS trust
FROM sources FINAL
WHERE {CHOSEN}
    AND opened_at <= {{to:DateTime('UTC')}}
    AND (closed_at IS NULL OR closed_at >= {{from:DateTime('UTC')}})
ORDER BY opened DESC
LIMIT 100""",
)

BOARD = Board(
    id="replica",
    title="Replica",
    description="The history of single replicas: what is cached, stored and lost, restarts and clears.",
    choices=("model", "role", "replica"),
    sections=(
        Section("Cache", (OCCUPANCY, GPU_BLOCKS, FLOW, GROUPS)),
        Section("Prefill", (BALANCE,)),
        Section("LMCache", (TIERS, USES)),
        Section("Engine", (SESSIONS,)),
    ),
    annotations=(restarts("restarts", CHOSEN),),
)
