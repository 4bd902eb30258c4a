"""Asks ClickHouse for everything the doctor wants to know, in bounded time."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import fields
from typing import Any, TypeVar

import msgspec
from clickhouse_connect.driver.client import Client

from connectors.process.addresses import shown
from connectors.process.tls_files import CertificateUnreadable
from pipeline.clickhouse.client import connect, store_unavailable
from pipeline.clickhouse.migrations import applied_of, missing_of
from pipeline.clickhouse.rights import LOCAL
from pipeline.clickhouse.sql_files import migrations, outdated
from pipeline.clickhouse.view_files import RECORDED
from pipeline.doctor.asking.engines import ask_engines
from pipeline.doctor.facts import HashFacts, HealthFacts, SessionFacts, SourceId, StoreFacts, Unanswered
from pipeline.errors import StoreBusy, StoreUnavailable
from schemas.settings import ClickHouse

_NONE: tuple[str, ...] = ()
_Facts = TypeVar("_Facts", HealthFacts, SessionFacts, HashFacts)

_HEALTH = """
SELECT
    replica, dp_rank,
    toUnixTimestamp(max(window)) AS last_window,
    argMax(incarnation, window) AS incarnation,
    argMax(last_seq, window) AS last_seq,
    toUnixTimestamp64Milli(tupleElement(argMax(tuple(last_batch_at), window), 1)) AS last_batch,
    argMax(connected, window) AS connected,
    argMax(trust, window) AS trust,
    argMax(drift_blocks, window) AS drift_blocks,
    toUnixTimestamp64Milli(tupleElement(argMax(tuple(drift_since), window), 1)) AS drift,
    max(lag_seconds) AS lag_seconds,
    sum(gap_batches), sum(replayed_batches), sum(lost_batches), sum(undecodable_events),
    sum(duplicate_batches), sum(batches), sum(restarts)
FROM {database}.stream_health_10s FINAL
WHERE window >= now('UTC') - INTERVAL 1 HOUR
    AND toStartOfHour(window) >= toStartOfHour(now('UTC') - INTERVAL 1 HOUR)
GROUP BY replica, dp_rank
"""
_SESSIONS = """
SELECT
    replica, dp_rank,
    argMax(model, incarnation),
    max(incarnation) AS life,
    toUnixTimestamp64Milli(argMax(opened_at, incarnation)),
    toUnixTimestamp64Milli(tupleElement(argMax(tuple(closed_at), incarnation), 1)),
    argMax(closed_reason, incarnation),
    argMax(engine, incarnation),
    argMax(wire_era, incarnation),
    argMax(hash_domain, incarnation),
    argMax(last_seq, incarnation),
    argMax(trust, incarnation),
    toUnixTimestamp64Milli(argMax(trust_since, incarnation)),
    countIf(closed_reason = 'superseded' AND opened_at >= now('UTC') - INTERVAL 1 HOUR),
    groupArrayIf(toUnixTimestamp64Milli(opened_at), opened_at >= now('UTC') - INTERVAL 65 MINUTE),
    argMax(remarks, incarnation)
FROM {database}.sources FINAL
GROUP BY replica, dp_rank
"""
_FALLEN = """
SELECT replica, dp_rank, groupArray(at)
FROM
(
    SELECT
        replica, dp_rank, toUnixTimestamp64Milli(time) AS at,
        [prefix_cache_queries, prefix_cache_hits, external_queries, external_hits] AS said,
        lagInFrame(said) OVER
            (PARTITION BY replica, dp_rank ORDER BY time ROWS BETWEEN 1 PRECEDING AND CURRENT ROW) AS before
    FROM {database}.engine_counters FINAL
    WHERE time >= now('UTC') - INTERVAL 1 HOUR
        AND toStartOfHour(time) >= toStartOfHour(now('UTC') - INTERVAL 1 HOUR)
)
WHERE notEmpty(before) AND arrayExists((now, then) -> ifNull(now < then, 0), said, before)
GROUP BY replica, dp_rank
"""
_HASHES = """
SELECT replica, dp_rank, hashes = 'alone', hash_groups
FROM {database}.source_hashes
WHERE isNull(closed_at)
"""
_WRITTEN = """
SELECT toUnixTimestamp(max(modification_time)), count()
FROM {parts}
WHERE database = {name:String} AND table = 'stream_health_10s' AND active
"""

_NEWEST = "SELECT toUnixTimestamp(max(window)), count() > 0 FROM {database}.stream_health_10s"


async def ask_store(store: ClickHouse, seconds: float) -> StoreFacts:
    """Return what the tables answer within so many seconds; never raises for what ClickHouse does."""
    if not store.url:
        return StoreFacts("", "these settings are without ClickHouse")
    bounded = msgspec.structs.replace(store, timeout_seconds=min(store.timeout_seconds, seconds))
    loop = asyncio.get_running_loop()
    ended = asyncio.Event()
    answers = _Answers(shown(store.url))

    def ask() -> None:
        try:
            _ask(bounded, answers)
        finally:
            if not loop.is_closed():
                loop.call_soon_threadsafe(ended.set)

    # A daemon: a server that answers nothing must not keep the process from ending.
    threading.Thread(target=ask, name="ask-store", daemon=True).start()
    try:
        await asyncio.wait_for(ended.wait(), seconds)
    except asyncio.TimeoutError:
        return answers.facts(f"no answer within {seconds:g} s")
    return answers.facts()


class _Answers:
    """What ClickHouse answered so far."""

    def __init__(self, address: str) -> None:
        self._address = address
        self.unavailable: str | None = None
        self.advice = ""
        self.connected = False
        self.given: dict[str, Any] = {}
        """By the key of the question."""
        self.unanswered: dict[str, Unanswered] = {}

    def facts(self, out_of_time: str = "") -> StoreFacts:
        """Return what was answered; `out_of_time`: why nothing was, where there was not even a connection."""
        if self.unavailable or (out_of_time and not self.connected):
            advice = self.advice or "check clickhouse.url and that it runs"
            return StoreFacts(self._address, self.unavailable or out_of_time, advice)
        given, unanswered = dict(self.given), dict(self.unanswered)
        left = [what for key, (what, _) in _QUESTIONS.items() if key not in given and what not in unanswered]
        missing, changed = given.pop(_MIGRATIONS, (_NONE, _NONE))
        return StoreFacts(
            address=self._address,
            unanswered=unanswered,
            late=tuple(dict.fromkeys(left)),
            migrations_missing=missing,
            migrations_changed=changed,
            **given,
        )


def _ask(store: ClickHouse, answers: _Answers) -> None:
    try:
        client = connect(store)
    except StoreUnavailable as error:
        answers.connected = isinstance(error, StoreBusy) and error.lacks != "answer"
        answers.unavailable = None if answers.connected else error.reason
        answers.advice = error.advice
        return
    except CertificateUnreadable as error:
        answers.unavailable, answers.advice = str(error), "correct it, or make the file readable"
        return
    answers.connected = True
    try:
        for key, (what, question) in _QUESTIONS.items():
            try:
                with store_unavailable(store):
                    answers.given[key] = question(client, store)
            except StoreBusy:
                continue
            except StoreUnavailable as error:
                answers.unanswered[what] = Unanswered(error.reason, error.advice)
    finally:
        client.close()


def _migrations(client: Client, store: ClickHouse) -> tuple[tuple[str, ...], tuple[str, ...]]:
    applied: dict[str, str] = {}
    table = f"{store.database}.schema_migrations"
    there = client.query(
        "SELECT count() FROM system.tables WHERE database = {name:String} AND name = 'schema_migrations'",
        parameters={"name": store.database},
    )
    if there.result_rows[0][0]:
        rows = client.query(f"SELECT name, toString(sha256) FROM {table} FINAL").result_rows
        applied = applied_of(rows)
    files = migrations()
    changed = tuple(file.name for file in files if applied.get(file.name, file.sha256) != file.sha256)
    of_tables = [name for name in applied if not name.startswith(RECORDED)]
    return tuple(missing_of(applied)), (*changed, *outdated(of_tables, files))


def _written(client: Client, store: ClickHouse) -> float | None:
    parts, database = "system.parts", store.database
    if store.cluster:
        parts, database = f"clusterAllReplicas('{store.cluster}', system.parts)", store.database + LOCAL
    asked = _WRITTEN.replace("{parts}", parts)
    ((at, written),) = client.query(asked, parameters={"name": database}).result_rows
    return float(at) if written else None


def _clock(client: Client, store: ClickHouse) -> float:
    asked = time.time()
    ((shown,),) = client.query("SELECT toUnixTimestamp64Milli(now64(3))").result_rows
    return float(shown) / 1000 - (asked + time.time()) / 2


def _newest(client: Client, store: ClickHouse) -> float | None:
    ((at, there),) = client.query(_NEWEST.format(database=store.database)).result_rows
    return float(at) if there else None


def _of_sources(
    client: Client, store: ClickHouse, statement: str, kind: type[_Facts], **made: Callable[[Any], Any]
) -> dict[SourceId, _Facts]:
    """Return facts of sources, whose rows have the fields in their order; some of these are to be `made`."""
    facts: dict[SourceId, _Facts] = {}
    for replica, rank, *columns in client.query(statement.format(database=store.database)).result_rows:
        row = dict(zip((field.name for field in fields(kind)), columns, strict=True))
        facts[replica, rank] = kind(**{**row, **{name: make(row[name]) for name, make in made.items()}})
    return facts


def _health(client: Client, store: ClickHouse) -> Mapping[SourceId, HealthFacts]:
    return _of_sources(
        client,
        store,
        _HEALTH,
        HealthFacts,
        window=float,
        last_batch_at=_seconds_of,
        connected=bool,
        drift_since=_seconds_of,
    )


def _sessions(client: Client, store: ClickHouse) -> Mapping[SourceId, SessionFacts]:
    return _of_sources(
        client,
        store,
        _SESSIONS,
        SessionFacts,
        opened_at=_seconds_of,
        closed_at=_seconds_of,
        trust_since=_seconds_of,
        openings=_all_seconds_of,
        remarks=tuple,
    )


def _hashes(client: Client, store: ClickHouse) -> Mapping[SourceId, HashFacts]:
    return _of_sources(client, store, _HASHES, HashFacts, alone=bool, groups=frozenset)


def _fallen(client: Client, store: ClickHouse) -> Mapping[SourceId, tuple[float, ...]]:
    rows = client.query(_FALLEN.format(database=store.database)).result_rows
    return {(replica, rank): _all_seconds_of(times) for replica, rank, times in rows}


def _seconds_of(at: Any) -> float | None:
    return None if at is None else at / 1000


def _all_seconds_of(times: Iterable[int]) -> tuple[float, ...]:
    return tuple(at / 1000 for at in times)


_MIGRATIONS = "migrations"
_QUESTIONS: dict[str, tuple[str, Callable[[Client, ClickHouse], Any]]] = {
    _MIGRATIONS: ("migrations", _migrations),
    "written_at": ("the time of the last row", _written),
    "clock": ("the clock", _clock),
    "newest_window": ("the newest window", _newest),
    "health": ("stream_health_10s", _health),
    "sessions": ("sources", _sessions),
    "hashes": ("source_hashes", _hashes),
    "counters_fell": ("engine_counters", _fallen),
    "engines": ("engine_counters", ask_engines),
}
"""{field of StoreFacts: (what is asked about, the question)}, what matters most first."""
