"""Asks ClickHouse what engines said on their metrics pages, and what the tables say of the same moments."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from clickhouse_connect.driver.client import Client

from pipeline.doctor.facts import EngineFacts, SourceId
from schemas.settings import ClickHouse
from schemas.trust import Trust, worst

# Readings of the present session only: counters of another begin at 0.
_ENGINES = """
WITH
    now('UTC') - INTERVAL 1 HOUR AS since,
    sessions AS
    (
        SELECT replica, dp_rank, max(opened_at) AS opened, argMax(trust, incarnation) AS trust
        FROM {database}.sources FINAL GROUP BY replica, dp_rank
    ),
    said AS
    (
        SELECT
            replica, dp_rank, any(sessions.trust) AS trust,
            toStartOfInterval(max(time), INTERVAL 10 SECOND) AS read,
            argMin(
                tuple(prefix_cache_queries, prefix_cache_hits, external_queries, external_hits,
                      capacity_blocks, kv_cache_usage),
                time
            ) AS first,
            argMax(
                tuple(prefix_cache_queries, prefix_cache_hits, external_queries, external_hits,
                      capacity_blocks, kv_cache_usage, block_size),
                time
            ) AS last
        FROM {database}.engine_counters FINAL INNER JOIN sessions USING (replica, dp_rank)
        WHERE time >= since AND toStartOfHour(time) >= toStartOfHour(since) AND time >= sessions.opened
        GROUP BY replica, dp_rank
    ),
    held AS
    (
        SELECT
            replica, dp_rank, window AS read, sum(entries) AS entries,
            any(block_size) AS size, any(capacity_blocks) AS room
        FROM {database}.occupancy_10s FINAL
        WHERE medium = 'gpu' AND window >= since AND toStartOfHour(window) >= toStartOfHour(since)
        GROUP BY replica, dp_rank, window
        HAVING count() = 1
    ),
    stored AS
    (
        SELECT replica, dp_rank, sum(stored_tokens) AS tokens
        FROM {database}.flow_10s FINAL
        WHERE medium = 'gpu' AND window >= since AND toStartOfHour(window) >= toStartOfHour(since)
        GROUP BY replica, dp_rank
    )
SELECT
    replica, dp_rank, said.trust, said.first, said.last, held.entries, stored.tokens, held.replica != '',
    -- Where the page tells of other blocks than events do, the row has its capacity in those of the events.
    held.replica != '' AND coalesce(held.size != tupleElement(said.last, 7), false) AS other_blocks, held.room
FROM said LEFT JOIN held USING (replica, dp_rank, read) LEFT JOIN stored USING (replica, dp_rank)
"""


def ask_engines(client: Client, store: ClickHouse) -> Mapping[SourceId, EngineFacts]:
    """Return what is known of every engine with a metrics page."""
    rows = client.query(_ENGINES.format(database=store.database)).result_rows
    facts = {
        (replica, rank): _facts(
            trust, first, last, entries if there else None, stored, room if other_blocks else last[4]
        )
        for replica, rank, trust, first, last, entries, stored, there, other_blocks, room in rows
    }
    of_replica: dict[str, list[EngineFacts]] = {}
    for (replica, _), engine in facts.items():
        of_replica.setdefault(replica, []).append(engine)
    return {source: _counting_for_all(engine, of_replica[source[0]]) for source, engine in facts.items()}


def _counting_for_all(engine: EngineFacts, ranks: Sequence[EngineFacts]) -> EngineFacts:
    """Return the facts of a rank; if only this one counts tokens, with what all ranks stored."""
    if not engine.counters or sum(bool(other.counters) for other in ranks) > 1:
        return engine
    return replace(
        engine,
        stored_tokens=sum(other.stored_tokens for other in ranks),
        trust=worst(*(other.trust for other in ranks)),
    )


def _facts(
    trust: Trust, first: Any, last: Any, entries: int | None, stored: int, capacity: int | None
) -> EngineFacts:
    """`first` and `last` are (queries, hits, external queries, external hits, capacity, usage, ...)."""
    queries, hits, external_queries, external_hits, _, usage, _ = last
    counters = {}
    if queries is not None and hits is not None:
        counters["prefix cache"] = (hits, queries)
    if external_queries is not None and external_hits is not None:
        counters["external cache"] = (external_hits, external_queries)
    computed = None
    if None not in (first[0], first[1]) and "prefix cache" in counters:
        computed = (queries - first[0]) - (hits - first[1])
        # What another cache gave was not computed either.
        if None not in (external_hits, first[3]):
            computed -= external_hits - first[3]
    return EngineFacts(
        capacity_blocks=capacity,
        usage=usage,
        counters=counters,
        computed_tokens=computed,
        entries=entries,
        stored_tokens=stored,
        trust=trust,
    )
