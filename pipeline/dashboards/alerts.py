"""Alert rules: conditions that need attention, and where to read what to do."""

from __future__ import annotations

from pipeline.dashboards.panel import Alert
from pipeline.dashboards.prometheus.promql import counted
from pipeline.dashboards.queries import RANGE

STREAM = ("model", "replica", "rank")


def of_each_stream(figure: str, where: str = "") -> str:
    """Return a query of a figure of each stream's health."""
    return f"""
SELECT model, replica, toString(dp_rank) AS rank, {figure} AS value
FROM stream_health({RANGE}){where}
GROUP BY model, replica, dp_rank"""


STILL_WANTED = """
WHERE (model, replica, dp_rank) NOT IN
(
    SELECT model, replica, dp_rank
    FROM sources FINAL
    GROUP BY model, replica, dp_rank
    HAVING argMax(closed_reason, incarnation) = 'removed'
)"""
"""The last row of a stream that is no longer read says that it is not connected."""


def of_all_prefill(share: str) -> str:
    """Return a query of a share of the prefill, for each model that had any."""
    return f"""
SELECT model, sum({share} * prefill_tokens) / nullIf(sum(prefill_tokens), 0) AS value
FROM hit_potential_series({RANGE})
GROUP BY model
HAVING isNotNull(value)"""


def share_of_prefill(*causes: str) -> str:
    """Return PromQL for the share of these causes in each model's prefill."""
    tokens = "kvlens_fleet_filled_tokens_per_second"
    prefill = f'{tokens}{{cause!~"promoted|transferred|generated"}}'
    return f'sum by (model) ({tokens}{{cause=~"{"|".join(causes)}"}}) / sum by (model) ({prefill})'


DEGRADED = Alert(
    id="stream-degraded",
    title="Batches or events of a stream are lost for good",
    description="The replica's figures may be too high or too low until its engine clears its cache or "
    "restarts.",
    sql=of_each_stream("toFloat64(sum(lost_batches) + sum(undecodable_events))"),
    above=0,
    for_minutes=0,
    over_minutes=10,
    severity="warning",
    runbook="stream-degraded",
    about=STREAM,
    panel="health-missing",
    metrics=f"sum by (replica) ({counted('kvlens_connector_lost_batches_total', '10m')}) "
    f"or sum by (replica) ({counted('kvlens_connector_undecodable_total', '10m')})",
)

UNREACHABLE = Alert(
    id="stream-unreachable",
    title="An engine's event stream cannot be reached",
    description="The connector has no connection to the engine's publisher: its figures no longer change.",
    sql=of_each_stream("toFloat64(NOT argMax(connected, window))", STILL_WANTED),
    above=0,
    for_minutes=2,
    over_minutes=5,
    severity="warning",
    runbook="stream-unreachable",
    about=STREAM,
    panel="health-streams",
    metrics="kvlens_connector_source_connected < kvlens_connector_sources",
)

NO_EVENTS = Alert(
    id="no-events",
    title="No events from the whole fleet",
    description="The worker applied not one engine event: engines are idle, events are turned off, or the "
    "pipeline is broken.",
    sql=f"""
SELECT toFloat64(sum(events) = 0) AS value
FROM stream_health({RANGE})""",
    above=0,
    for_minutes=5,
    over_minutes=10,
    severity="warning",
    runbook="no-events",
    panel="health-throughput",
    # Where no connector runs, or none has a replica, there is no series.
    metrics="(sum(increase(kvlens_connector_engine_events_total[10m])) or vector(0)) == 0",
)

STALE = Alert(
    id="tables-stale",
    title="No new rows in the tables",
    description="The newest window of any source is more than a minute old: the worker, Kafka or "
    "ClickHouse is not keeping up.",
    sql=f"""
WITH greatest(max(window) + INTERVAL 10 SECOND, {{from:DateTime('UTC')}}) AS newest
SELECT toFloat64(dateDiff('second', newest, {{to:DateTime('UTC')}})) AS value
FROM stream_health({RANGE})""",
    above=60,
    for_minutes=2,
    over_minutes=30,
    severity="critical",
    runbook="tables-stale",
    panel="fleet-freshness",
    # After an hour the gauge is gone; a page that still answers without it is stale as well.
    metrics="time() - max(kvlens_fleet_newest_window_timestamp_seconds) > 70 "
    "or (count(kvlens_fleet_folded_series) unless count(kvlens_fleet_newest_window_timestamp_seconds))",
)

LATE = Alert(
    id="stream-late",
    title="Events arrive late",
    description="Live batches take more than five seconds from the engine to the connector, or the clocks "
    "differ.",
    sql=of_each_stream("max(lag_seconds)"),
    above=5,
    for_minutes=5,
    over_minutes=5,
    severity="warning",
    runbook="stream-late",
    about=STREAM,
    panel="health-lag",
)

DRIFT = Alert(
    id="stream-drift",
    title="More blocks are resident than the engine has",
    description="Removals are missing without a trace in the sequence numbers: the occupancy of this "
    "replica is too high.",
    sql=of_each_stream("toFloat64(argMax(drift_blocks, window))"),
    above=0,
    for_minutes=5,
    over_minutes=10,
    severity="warning",
    runbook="stream-drift",
    about=STREAM,
    panel="health-streams",
    metrics='sum(kvlens_worker_troubled_sources{trouble="drifting"}) > 0',
)

CAPACITY_LOSS = Alert(
    id="capacity-loss",
    title="The cache is too small for its traffic",
    description="Engines had evicted more than a quarter of a model's prefill tokens within the "
    "horizon: more "
    "cache, or a lower tier, would have saved them.",
    sql=of_all_prefill("capacity_share"),
    above=0.25,
    for_minutes=15,
    over_minutes=30,
    severity="warning",
    runbook="capacity-loss",
    about=("model",),
    panel="fleet-fills",
    metrics=share_of_prefill("evicted", "evicted_elsewhere", "peer_and_evicted") + " > 0.25",
)

ROUTING_LOSS = Alert(
    id="routing-loss",
    title="Routing sends requests away from their cache",
    description="More than a quarter of a model's prefill tokens were resident on another replica at the "
    "time.",
    sql=of_all_prefill("routing_share"),
    above=0.25,
    for_minutes=15,
    over_minutes=30,
    severity="warning",
    runbook="routing-loss",
    about=("model",),
    panel="fleet-fills",
    metrics=share_of_prefill("peer", "peer_and_evicted") + " > 0.25",
)

HASHES = Alert(
    id="hashes-not-comparable",
    title="Hashes of a replica are not comparable",
    description="It shares no first block with any other replica of its hash domain, though the traffic of "
    "both keeps coming back to first blocks: nobody can see what routing loses there.",
    sql="""
SELECT model, replica, toString(dp_rank) AS rank, toFloat64(hashes = 'alone') AS value
FROM source_hashes
WHERE isNull(closed_at)""",
    above=0,
    for_minutes=5,
    over_minutes=5,
    severity="warning",
    runbook="hashes-not-comparable",
    about=STREAM,
    panel="health-hashes",
)

ALERTS = (DEGRADED, UNREACHABLE, NO_EVENTS, STALE, LATE, DRIFT, CAPACITY_LOSS, ROUTING_LOSS, HASHES)
