"""An hour of rows whose figures are easy to add up, and a way to run a panel on them."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta, timezone
from functools import cache
from typing import Any, Protocol

import clickhouse_connect
from clickhouse_connect.driver.client import Client
from clickhouse_connect.driver.query import QueryResult

from pipeline.clickhouse import migrations
from pipeline.clickhouse.rollups import Rollups
from pipeline.clickhouse.writer import Tables
from pipeline.dashboards.panel import used_parameters
from pipeline.worker.telemetry import WorkerMetrics
from schemas.fleet_rows import CapacityCurveRow, ChoiceRow, FillsRow, HotPrefixRow, RedundancyRow
from schemas.rows import EngineCountersRow, FlowRow, ObjectsRow, OccupancyRow, Row, SourceRow, StreamHealthRow
from schemas.setting_rows import HashGroupRow, PrefillSettingsRow
from schemas.settings import ClickHouse, Settings

HOUR = datetime.now(timezone.utc).replace(minute=0, second=0, microsecond=0) - timedelta(hours=2)
"""Start of the hour that has rows."""
WINDOWS = 360
PANEL_SECONDS = 100
"""Longest time for a panel, on a machine that is busy with other tests."""
REPLICAS = ("a", "b")
ROLES = {"a": "decode", "b": ""}


class Served(Protocol):
    """A server of tables."""

    @property
    def url(self) -> str: ...


RunSql = Callable[..., QueryResult]


def window_rows(number: int, replica: str) -> list[Row]:
    """What one source writes in a window: 50 entries of 16 tokens, 100 fills of which 60 were on a peer."""
    at = HOUR + timedelta(seconds=10 * number)
    trust = "degraded" if replica == "b" and number >= 180 else "complete"
    return [
        OccupancyRow(at, "m", replica, 0, "gpu", 0, 16, 50, 40, 640, 0, 100, False, False, trust, at, 1),
        OccupancyRow(at, "m", replica, 0, "cpu", 0, 16, 10, 10, 160, 0, 0, False, False, trust, at, 1),
        FlowRow(
            at, "m", replica, 0, "gpu", 0, 20, 320, 20, 10, 10, 160, 30 if number == 100 else 0, 0, 0, 0,
            [0, 0, 4, 6], trust, at, 1,
        ),
        StreamHealthRow(
            at, "m", replica, 0, 5, 30, 0, 2, 1, 1 if replica == "b" and number == 180 else 0, 0,
            1 if number == 100 else 0, 7, number, at, True, 0.25, 0, None, trust, at, 1,
        ),
        FillsRow(
            at, "d", "m", replica, 0, 0, 0, 10, 100, 0, 0, 0, 0, 0, 0, 0, 6, 60, 0, 0, 0, 2, 20, 0, 0, 0, 1,
            10, 1, 10, 0, 0, 0, 0, [0, 0, 0, 2], 1, trust, 1,
        ),
        CapacityCurveRow(at, "d", "m", replica, 0, 0, 0, [0, 0, 0, 0, 20], 1, trust, 1),
    ]  # fmt: skip


def object_rows(at: datetime, replica: str) -> list[Row]:
    """Two workers' objects: 30 of 80 MiB in memory, as many in storage, of which four were read."""
    return [
        ObjectsRow(
            at, "m", replica, 0, medium, group, 15, 15 << 20, capacity, 1, 1 << 20, 4, 1024, 4 << 20,
            hits, hits * 256, hits << 20, 2, 0, 0, [1], [0, 4], [1, 0, 3], "complete", at, 1,
        )
        for medium, capacity, hits in (("cpu", 80 << 20, 0), ("lmcache-l2-fs", 0, 4))
        for group in (1, 2)
    ]  # fmt: skip


def choice_rows(number: int, at: datetime, replica: str) -> list[Row]:
    """Two choices of a replica: one matched 100 of 140 tokens, the other was not judged."""
    chosen = at + timedelta(seconds=3)
    stale = number >= 180
    return [
        ChoiceRow(
            chosen, "m", replica, f"{number}-{replica}", "default", "", 10, 140, 100, "c", "", stale, 0.1,
            "complete", False, 1,
        ),
        ChoiceRow(
            chosen, "m", replica, f"{number}-{replica}-else", "default", "", 10, 0, 0, "", "unknown_replica",
            stale, 0.1, "complete", False, 1,
        ),
    ]  # fmt: skip


def hour_of_rows() -> list[Row]:
    rows: list[Row] = []
    for number in range(WINDOWS):
        at = HOUR + timedelta(seconds=10 * number)
        for replica in REPLICAS:
            rows += window_rows(number, replica)
            rows += choice_rows(number, at, replica)
            rows += object_rows(at, replica)
            rows.append(
                EngineCountersRow(
                    at,
                    "m",
                    replica,
                    0,
                    1000 * (number + 1),
                    900 * (number + 1),
                    None,
                    None,
                    100,
                    16,
                    0.5,
                    3.125 * (number + 1),
                    100 * (number + 1),
                    None,
                    100 * (number + 1),
                    0,
                    None,
                    10 * (number + 1),
                    1,
                )
            )
        rows.append(RedundancyRow(at, "d", "m", "gpu", 0, 0, 20, 20, 0, 0, 0, 640, 960, 0, 1, "complete", 1))
        rows += [
            HotPrefixRow(
                at, "d", "m", 0, "sql", 0xABC, shard, 40 - shard, 3 - shard, 32, 32 + 16 * shard, 16, 0, 1,
                "complete", 1,
            )
            for shard in range(2)
        ]  # fmt: skip
    rows += [
        SourceRow(
            "m",
            replica,
            0,
            7,
            HOUR,
            None,
            "",
            "vllm",
            "map",
            "d",
            "default",
            ROLES[replica],
            0,
            WINDOWS,
            [],
            "complete",
            HOUR,
            1,
        )
        for replica in REPLICAS
    ]
    rows.append(PrefillSettingsRow("m", HOUR, 1000.0, 2.0, 3.6, "EUR", 1))
    rows += [
        HashGroupRow("d", "m", replica, 0, shard, 7, f"{replica}/0@7", 0, replica == "b", 1)
        for replica in REPLICAS
        for shard in range(2)
    ]
    return rows


def at(store: Served, database: str) -> Settings:
    """Return the settings of a database there."""
    return Settings(clickhouse=ClickHouse(url=store.url, database=database, timeout_seconds=PANEL_SECONDS))


def migrated(store: Served) -> Settings:
    settings = at(store, f"boards_{secrets.token_hex(4)}")
    migrations.apply(settings)
    return settings


def write_rows(settings: Settings, rows: list[Row], *, rolled_up: bool = True) -> None:
    """Insert the rows; recompute the rollups behind them, unless nobody reads minutes and hours."""

    async def write() -> None:
        tables, rollups = Tables(settings.clickhouse), Rollups(settings.clickhouse, WorkerMetrics())
        minutes = await rollups.announce(rows)
        await tables.insert(rows)
        rollups.written(minutes)
        if rolled_up:
            await rollups.run_once()
        tables.close()

    # In a thread, because the browser's driver keeps a loop running in this one.
    with ThreadPoolExecutor(1) as elsewhere:
        elsewhere.submit(asyncio.run, write()).result()


def runner(store: Served, settings: Settings, **reading: Any) -> RunSql:
    """`reading`: settings of every query."""
    user = settings.clickhouse
    client = _client(store.url, user.username, user.password, user.database, tuple(sorted(reading.items())))

    def run(owner: str, sql: str, **chosen: Any) -> QueryResult:
        values = {
            "from": HOUR,
            "to": HOUR + timedelta(minutes=59, seconds=59),
            "step": 60,
            "model": [],
            "replica": [],
            "role": [],
            **chosen,
        }
        return client.query(sql, parameters={name: values[name] for name in used_parameters(owner, sql)})

    return run


@cache
def _client(url: str, username: str, password: str, database: str, reading: tuple[Any, ...]) -> Client:
    """A client that is kept: a new one asks the store for its settings first."""
    return clickhouse_connect.get_client(
        dsn=url,
        username=username,
        password=password,
        database=database,
        autogenerate_session_id=False,
        settings=dict(reading),
    )


def remembering(run: RunSql) -> RunSql:
    """Ask what was asked before no second time: for tables that nobody writes into."""
    answers: dict[tuple[str, str], QueryResult] = {}

    def answered(owner: str, sql: str, **chosen: Any) -> QueryResult:
        question = sql, repr(sorted(chosen.items()))
        if question not in answers:
            answers[question] = run(owner, sql, **chosen)
        return answers[question]

    return answered
