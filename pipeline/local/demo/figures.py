"""The figures that the demo shows, from queries to ClickHouse that any user could send."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from clickhouse_connect.driver.client import Client

from pipeline.clickhouse.client import moment

WINDOW_SECONDS = 60
TABLES = ("occupancy_10s", "flow_10s", "stream_health_10s", "engine_counters", "sources")

# A parameterised view cannot be named by an Identifier parameter; the settings allow plain names only.
_VIEW = "{database}.{view}(from = {{from:UInt32}}, to = {{to:UInt32}})"
_OCCUPANCY = """
SELECT replica, dp_rank, medium, entries, blocks, smaller_blocks, tokens, is_bound,
       tokens_at_least, capacity_blocks, store_only, at_least, toString(trust)
FROM {view}
ORDER BY window DESC LIMIT 1 BY model, replica, dp_rank, medium
"""
_FLOW = """
SELECT replica, dp_rank, medium, sum(stored_blocks), sum(evicted_blocks), sumForEach(lifetime_hist),
       min(window)
FROM {view}
GROUP BY replica, dp_rank, medium
"""
_HEALTH = """
SELECT replica, dp_rank, argMax(last_seq, version), sum(events), sum(lost_batches),
       sum(undecodable_events)
FROM {view}
GROUP BY replica, dp_rank
"""
_EVENTS = "SELECT sum(events) FROM {database:Identifier}.stream_health_10s FINAL"

# Bucket k counts lifetimes from 2**(k-11) to 2**(k-10) seconds, taken as the middle of these.
_FIRST_BUCKET_MIDDLE = 1.5 * 2.0**-11


@dataclass(frozen=True)
class PoolFigures:
    """One medium of one source: what is resident now, and what came and went in the last minute.

    Up to `trust` the fields are the columns of the query, in order.
    """

    replica: str
    dp_rank: int
    medium: str
    entries: int
    """Physical, of the largest block size, which is what capacity counts."""
    blocks: int
    """Distinct, of the largest block size."""
    fine_blocks: int
    """Distinct, of smaller sizes: announced beside the physical blocks, or for parts of them."""
    tokens: int | None
    """None where the engine does not announce how many a block has."""
    is_bound: bool
    """There may be fewer tokens."""
    tokens_at_least: bool
    """There may be more tokens."""
    capacity_blocks: int
    """0 where it is not known."""
    store_only: bool
    at_least: bool
    trust: str
    stored_per_second: float
    evicted_per_second: float
    evicted_blocks: int
    mean_lifetime_seconds: float | None
    """Of the blocks evicted, from a histogram with steps of 2; None when none was."""


@dataclass(frozen=True)
class SourceHealth:
    """The stream of one source in the last minute."""

    last_seq: int
    events: int
    lost_batches: int
    undecodable_events: int


def read_pools(client: Client, database: str, now: float) -> list[PoolFigures]:
    """Return the figures of all sources that had rows in the last minute, by name."""
    flows = {row[:3]: row[3:] for row in _read(client, _FLOW, database, "flow", now)}
    pools = []
    for row in _read(client, _OCCUPANCY, database, "held", now):
        stored, evicted, lifetimes, since = flows.get(row[:3], (0, 0, [], None))
        seconds = WINDOW_SECONDS if since is None else min(WINDOW_SECONDS, now - moment(since))
        seconds = max(seconds, 1.0)
        last_minute = stored / seconds, evicted / seconds, evicted, mean_lifetime(lifetimes)
        pools.append(PoolFigures(*(*row, *last_minute)))
    return sorted(pools, key=lambda pool: (pool.replica, pool.dp_rank, pool.medium != "gpu", pool.medium))


def read_health(client: Client, database: str, now: float) -> dict[tuple[str, int], SourceHealth]:
    """Return the health of each source's stream in the last minute."""
    rows = _read(client, _HEALTH, database, "stream_health", now)
    return {(row[0], row[1]): SourceHealth(*row[2:]) for row in rows}


def count_rows(client: Client, database: str) -> dict[str, int]:
    """Return the number of rows of each table, replaced ones left out."""
    return {
        table: client.query(
            f"SELECT count() FROM {{database:Identifier}}.{table} FINAL", parameters={"database": database}
        ).result_rows[0][0]
        for table in TABLES
    }


def count_events(client: Client, database: str) -> int:
    """Return how many engine events the tables account for, over all time."""
    events: int = client.query(_EVENTS, parameters={"database": database}).result_rows[0][0]
    return events


def mean_lifetime(histogram: list[int]) -> float | None:
    """Return the mean in seconds of a lifetime histogram of the flow table, to within a bucket's width."""
    blocks = sum(histogram)
    if not blocks:
        return None
    return sum(count * _FIRST_BUCKET_MIDDLE * 2.0**bucket for bucket, count in enumerate(histogram)) / blocks


def _read(client: Client, query: str, database: str, view: str, now: float) -> Sequence[Sequence[Any]]:
    # Windows are of engine time, which may be a little ahead.
    bounds = {"from": int(now) - WINDOW_SECONDS, "to": int(now) + 10}
    return client.query(
        query.format(view=_VIEW.format(database=database, view=view)), parameters=bounds
    ).result_rows
