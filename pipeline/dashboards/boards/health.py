"""The board of the pipeline itself: are the other boards true, complete and fresh?"""

from __future__ import annotations

from pipeline.dashboards.boards.fleet import FRESHNESS, SOURCES_NOW, TRUST_COLOURS
from pipeline.dashboards.panel import Board, Panel, Section
from pipeline.dashboards.queries import CHOSEN, SERIES, TOP, rates_by_model

TIMELINE = Panel(
    id="health-timeline",
    title="Streams that were not complete",
    description=f"Trust of each stream over time, for the {TOP} that were incomplete for longest. "
    "No row: every stream was complete throughout.",
    unit="sources",
    kind="state_timeline",
    width=24,
    empty="Every stream was complete throughout this range.",
    named_by="source",
    names="source",
    sql=f"""
WITH worst AS
(
    SELECT replica, dp_rank
    FROM stream_health_series({SERIES})
    WHERE trust != 'complete' AND {CHOSEN}
    GROUP BY replica, dp_rank
    ORDER BY count() DESC, replica, dp_rank
    LIMIT {TOP}
)
SELECT time, concat(replica, '/', toString(dp_rank)) AS source, toString(max(trust)) AS state
FROM stream_health_series({SERIES})
WHERE has((SELECT groupArray((replica, dp_rank)) FROM worst), (replica, dp_rank))
GROUP BY time, source
ORDER BY time, source""",
    colours=TRUST_COLOURS,
)

BATCHES = Panel(
    id="health-missing",
    title="Batches missing, recovered, lost",
    description="Engine batches that were missing when due, those that a replay brought, and those lost for "
    "good. Exact, from sequence numbers.",
    unit="batches",
    kind="timeseries",
    sql=f"""
SELECT
    time,
    sum(gap_batches) AS missing,
    sum(replayed_batches) AS replayed,
    sum(lost_batches) AS lost,
    sum(duplicate_batches) AS repeated
FROM stream_health_series({SERIES})
WHERE {CHOSEN}
GROUP BY time
ORDER BY time""",
    colours={"missing": "#d9a514", "replayed": "#2f9e6e", "lost": "#d1495b", "repeated": "#9aa5b1"},
)

THROUGHPUT = Panel(
    id="health-throughput",
    title="Events",
    description=f"Engine events applied per second, by model: the {TOP} with most, and all others together.",
    unit="events/s",
    kind="timeseries",
    named_by="series",
    names="model",
    sql=rates_by_model("stream_health_series", "events", "events", CHOSEN),
)

LAG = Panel(
    id="health-lag",
    title="Ingest latency",
    description="Largest time from publication of a live batch to its receipt, over all streams: the "
    "network and the difference of the clocks.",
    unit="seconds",
    kind="timeseries",
    sql=f"""
SELECT time, max(lag_seconds) AS largest, quantile(0.5)(lag_seconds) AS median
FROM stream_health_series({SERIES})
WHERE {CHOSEN}
GROUP BY time
ORDER BY time""",
)

UNDECODABLE = Panel(
    id="health-undecodable",
    title="Undecodable events",
    description="Events, or whole frames, that kvlens could not decode. Their streams are degraded from "
    f"then on. The {TOP} models with most, and all others together.",
    unit="events/s",
    kind="timeseries",
    named_by="series",
    names="model",
    sql=rates_by_model("stream_health_series", "undecodable_events", "undecodable", CHOSEN),
)

STREAMS = Panel(
    id="health-streams",
    empty="No stream has a problem in this range.",
    title="Streams with problems",
    description="Streams that lost batches or events in the range, or are not complete at its end; worst "
    "first.",
    unit="batches",
    kind="table",
    width=24,
    sql=f"""
SELECT
    model, replica, dp_rank AS rank,
    toString(argMax(trust, window)) AS trust,
    argMax(trust_since, window) AS since,
    sum(lost_batches) AS lost,
    sum(undecodable_events) AS undecodable,
    sum(restarts) AS restarts,
    argMax(connected, window) AS connected,
    argMax(drift_blocks, window) AS drift,
    if(argMax(last_seq, window) < 0, 'never heard', toString(argMax(last_seq, window))) AS `newest batch`,
    max(window) AS last_window
FROM stream_health_series({SERIES})
WHERE {CHOSEN}
GROUP BY model, replica, dp_rank
HAVING trust != 'complete' OR lost > 0 OR undecodable > 0 OR drift > 0 OR NOT connected
ORDER BY lost + undecodable + drift DESC, model, replica, rank
LIMIT 100""",
)

HASHES = Panel(
    id="health-hashes",
    title="Incompatible block hashes",
    description="Streams that share no first block with any other of their hash domain, though the traffic "
    "of both keeps coming back to first blocks. Their fills count as unknown: what routing loses there does "
    "not show. Give all replicas the same hash algorithm and PYTHONHASHSEED, or those that differ their own "
    "`hash_scheme`. Normal if you route by session and prompts have nothing in common: set "
    "`fleet.compare_after = 0`. `kvlens doctor` names groups, too. The present state, whatever the range.",
    unit="sources",
    kind="table",
    width=24,
    empty="No stream is known to hash differently from all others of its hash domain; where they fall into "
    "groups that share nothing with each other, the findings above say so.",
    sql=f"""
SELECT
    model, replica, dp_rank AS rank, hash_domain AS `hash domain`,
    doubtful_shards AS `shards without a match`,
    alike_streams AS `alike in the domain`,
    other_streams AS `not known in the domain`
FROM
(
    SELECT
        *,
        countIf(hashes = 'alike') OVER of_domain AS alike_streams,
        countIf(hashes = 'not known') OVER of_domain AS other_streams
    FROM source_hashes
    WHERE isNull(closed_at)
    WINDOW of_domain AS (PARTITION BY hash_domain)
)
WHERE hashes = 'alone' AND {CHOSEN}
ORDER BY model, `hash domain`, replica, rank
LIMIT 100""",
)

BOARD = Board(
    id="health",
    title="Pipeline health",
    description="Whether you can believe the other boards: streams, gaps, lag, freshness.",
    choices=("model", "role", "replica"),
    sections=(
        Section("Now", (SOURCES_NOW, FRESHNESS)),
        Section("Streams", (TIMELINE, BATCHES, UNDECODABLE, THROUGHPUT, LAG, STREAMS, HASHES)),
    ),
)
