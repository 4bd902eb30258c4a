"""Rollups equal a recount of the ten-second rows, whatever came late, twice or out of order."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable, Iterator
from datetime import datetime, timedelta, timezone, tzinfo

import pytest
from clickhouse_connect.driver.client import Client

from pipeline.clickhouse import rollups as rollups_module
from pipeline.clickhouse.rollups import Rollups, minutes_of, slices
from pipeline.clickhouse.writer import Tables
from pipeline.local.clickhouse.embedded import EmbeddedStore
from pipeline.verify.findings import Findings
from pipeline.verify.rollups.check import check_rollups
from pipeline.verify.rollups.statements import StoredRollups
from pipeline.verify.store import StoredTables
from pipeline.worker.telemetry import WorkerMetrics
from schemas.fleet_rows import CapacityCurveRow, FillsRow, HotPrefixRow, RedundancyRow
from schemas.rows import FlowRow, OccupancyRow, Row, StreamHealthRow
from schemas.settings import ClickHouse, Settings
from schemas.trust import TRUST_ORDER, Trust
from tests.support.rollups.rows import FAMILIES, PERIODS, as_periods, rolled_up, stored
from tests.support.suite.night import first_by_day

NOW = datetime.now(timezone.utc).replace(minute=0, second=0, microsecond=0) - timedelta(hours=3)


def random_rows(rng: random.Random, version: int, windows: Iterable[int]) -> list[Row]:
    rows: list[Row] = []
    for number in windows:
        window = NOW + timedelta(seconds=10 * number)
        for replica in ("a", "b"):
            trust = rng.choice(TRUST_ORDER)
            since = window - timedelta(seconds=rng.randint(0, 99))
            blocks = rng.randint(0, 1000)
            rows += [
                OccupancyRow(
                    window, "m", replica, 0, "gpu", 0, 16, blocks + 1, blocks, blocks * 16, 0, 2000, False,
                    rng.random() < 0.5,
                    trust, since, version,
                ),
                FlowRow(
                    window, "m", replica, 0, "gpu", 0, *[rng.randint(0, 50) for _ in range(10)],
                    [rng.randint(0, 9) for _ in range(rng.randint(0, 12))], trust, since, version,
                ),
                *fleet_rows(rng, window, replica, trust, version),
                StreamHealthRow(
                    window, "m", replica, 0, *[rng.randint(0, 5) for _ in range(8)], 7, number,
                    window, True, rng.random(), 0, None, trust, since, version,
                ),
            ]  # fmt: skip
    return rows


def fleet_rows(
    rng: random.Random, window: datetime, replica: str, trust: Trust, version: int
) -> Iterator[Row]:
    # Shard 1 is sometimes silent: then its last redundancy of the minute counts.
    for shard in range(1 + rng.randint(0, 1)):
        yield FillsRow(
            window, "d", "m", replica, 0, 0, shard, *[rng.randint(0, 50) for _ in range(27)],
            [rng.randint(0, 9) for _ in range(rng.randint(0, 12))], 1, trust, version,
        )  # fmt: skip
        yield RedundancyRow(
            window, "d", "m", replica, 0, shard, *[rng.randint(0, 50) for _ in range(8)], 1, trust, version
        )
        yield CapacityCurveRow(
            window, "d", "m", replica, 0, 0, shard,
            [rng.randint(0, 9) for _ in range(rng.randint(0, 12))], 1, trust, version,
        )  # fmt: skip


NAMES = ("capacity_curve", "fills", "flow", "occupancy", "redundancy", "stream_health")


@pytest.fixture
def database(own: Settings) -> str:
    return own.clickhouse.database


@pytest.mark.parametrize("seed", first_by_day([1, 2]))
async def test_rollups_equal_a_recount(
    seed: int, store: EmbeddedStore, store_client: Client, database: str
) -> None:
    rng = random.Random(seed)
    settings = Settings(clickhouse=ClickHouse(url=store.url, database=database))
    tables, rollups = Tables(settings.clickhouse), Rollups(settings.clickhouse, WorkerMetrics())
    # An hour and a half; then some of it again with higher and lower versions, and late windows.
    portions = [
        random_rows(rng, 10, range(300)),
        random_rows(rng, 10, range(300, 540)),
        random_rows(rng, 20, rng.sample(range(540), 40)),
        random_rows(rng, 5, rng.sample(range(540), 40)),
        random_rows(rng, 1, range(-30, 0)),
    ]
    for portion in [*portions, portions[0]]:
        rng.shuffle(portion)
        minutes = await rollups.announce(portion)
        await tables.insert(portion)
        rollups.written(minutes)
        await rollups.run_once()
    tables.close()
    for name in NAMES:
        fine = stored(store_client, database, f"{name}_10s")
        for per, length in PERIODS.items():
            found = as_periods(FAMILIES[name], stored(store_client, database, f"{name}_{per}"))
            assert found == rolled_up(FAMILIES[name], length, fine), (name, per)


PLANTED = {
    "capacity_curve": "sampled_one_in",
    "fills": "cold_tokens",
    "flow": "evicted_tokens",
    "hot_prefixes": "windows",
    "occupancy": "entries_max",
    "redundancy": "owners_2",
    "stream_health": "last_seq",
}
TABLES = [(f"{name}_{per}", column) for name, column in PLANTED.items() for per in PERIODS]


async def test_planted_differences_are_named(
    store: EmbeddedStore, store_client: Client, database: str
) -> None:
    """In all tables at once, so no wrong minute hides a wrong hour: figures, then rows missing and added."""
    settings = Settings(clickhouse=ClickHouse(url=store.url, database=database))
    tables, rollups = Tables(settings.clickhouse), Rollups(settings.clickhouse, WorkerMetrics())
    prefixes = [
        HotPrefixRow(
            NOW + timedelta(seconds=10 * number), "d", "m", 0, "", 7, 0, 1, 2, 16, 16, 0, 0, 1, "complete", 1
        )
        for number in range(12)
    ]
    rows: list[Row] = [*random_rows(random.Random(5), 1, range(12)), *prefixes]
    minutes = await rollups.announce(rows)
    await tables.insert(rows)
    rollups.written(minutes)
    await rollups.run_once()
    tables.close()
    reader = StoredTables(settings.clickhouse)

    def checked() -> Findings:
        findings = Findings()
        check_rollups(StoredRollups(reader), findings, oldest=NOW - timedelta(days=1), patience=0.0)
        return findings

    def put(table: str, *changed: str) -> None:
        place = f"{database}.{table}"
        changes = ", ".join((*changed, "version + 1 AS version"))
        store_client.command(f"INSERT INTO {place} SELECT * REPLACE ({changes}) FROM {place} FINAL LIMIT 1")

    right = checked()
    assert right.equal, (right.kept[:3], right.late)
    assert {table for table, compared in right.compared.items() if compared} == {name for name, _ in TABLES}
    for table, column in TABLES:
        put(table, f"{column} + 1000 AS {column}")
    wrong = checked()
    assert {(one.table, one.kind, *one.expected) for one in wrong.kept} == {
        (table, "differs", column) for table, column in TABLES
    }
    assert all(one.found[column] == one.expected[column] + 1000 for one in wrong.kept for column in one.found)
    assert wrong.compared == right.compared
    for table, column in TABLES:
        put(table, f"{column} - 1000 AS {column}")
    assert checked().equal
    for table, _ in TABLES:
        # Without the version that counts, an earlier one would show.
        store_client.command(f"OPTIMIZE TABLE {database}.{table} FINAL")
        put(table, "'other' AS model")
        store_client.command(
            f"ALTER TABLE {database}.{table} DELETE WHERE model = 'm' SETTINGS mutations_sync = 1"
        )
    found = Counter((one.table, one.kind) for one in checked().kept)
    assert found == {
        key: rows
        for table, _ in TABLES
        for key, rows in (((table, "unexpected"), 1), ((table, "missing"), right.compared[table]))
    }
    reader.close()


async def test_what_a_killed_worker_wrote_is_due_until_another_recomputes_it(
    store: EmbeddedStore, store_client: Client, database: str
) -> None:
    settings = Settings(clickhouse=ClickHouse(url=store.url, database=database))
    rows = random_rows(random.Random(3), 1, range(6))
    minutes = {(name, NOW) for name in NAMES}
    tables, reader = Tables(settings.clickhouse), StoredTables(settings.clickhouse)
    killed, other = (Rollups(settings.clickhouse, WorkerMetrics()) for _ in range(2))
    await other.run_once()
    announced = await killed.announce(rows)
    assert {*reader.minutes_due()} == minutes
    await tables.insert(rows)
    killed.written(announced)
    # The other one does not know of it until it is told that somebody may be gone.
    await other.run_once()
    assert not store_client.query(f"SELECT * FROM {database}.flow_1m").result_rows
    other.others_left()
    await other.run_once()
    assert store_client.query(f"SELECT * FROM {database}.flow_1m").result_rows
    # The killed one may be slow only: its notes hold for ten minutes.
    assert {*reader.minutes_due()} == minutes
    await killed.run_once()
    assert not {*reader.minutes_due()}
    store_client.command(
        f"INSERT INTO {database}.rollups_due SELECT 'gone', family, minute, 5, now() - 700, 0 "
        f"FROM {database}.rollups_due WHERE family = 'flow'"
    )
    assert {*reader.minutes_due()} == {("flow", NOW)}
    other.others_left()
    await other.run_once()
    assert not {*reader.minutes_due()}
    tables.close()
    reader.close()


def test_due_are_the_minutes_of_rolled_up_rows() -> None:
    rows = random_rows(random.Random(0), 1, [0, 5, 6])
    assert minutes_of(rows) == {
        (name, NOW + timedelta(minutes=number)) for name in NAMES for number in range(2)
    }


def test_slices_keep_a_statement_within_its_span() -> None:
    minutes = [NOW + timedelta(minutes=number) for number in (130, 1, 59, 60)]
    assert slices(minutes, timedelta(hours=1)) == [
        [NOW + timedelta(minutes=1), NOW + timedelta(minutes=59)],
        [NOW + timedelta(minutes=60)],
        [NOW + timedelta(minutes=130)],
    ]


@pytest.mark.parametrize("ahead", [timedelta(minutes=20), timedelta(minutes=-20)])
async def test_clocks_of_workers_may_differ(
    ahead: timedelta, store: EmbeddedStore, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    class ItsTime(datetime):
        @classmethod
        def now(cls, tz: tzinfo | None = None) -> datetime:
            return datetime.now(tz) + ahead

    settings = Settings(clickhouse=ClickHouse(url=store.url, database=database))
    reader = StoredTables(settings.clickhouse)
    writing, other = (Rollups(settings.clickhouse, WorkerMetrics()) for _ in range(2))
    with monkeypatch.context() as one:
        one.setattr(rollups_module, "datetime", ItsTime)
        await writing.announce(random_rows(random.Random(3), 1, range(6)))
    for clock in (ItsTime, datetime):
        with monkeypatch.context() as one:
            one.setattr(rollups_module, "datetime", clock)
            other.others_left()
            await other.run_once()
    assert {*reader.minutes_due()} == {(name, NOW) for name in NAMES}
    reader.close()
