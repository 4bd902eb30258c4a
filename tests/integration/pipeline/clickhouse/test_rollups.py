"""Rollups equal a recount of the ten-second rows, whatever came late, twice or out of order."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Iterable, Iterator
from datetime import datetime, timedelta, timezone, tzinfo
from typing import Any

import pytest
from clickhouse_connect.driver.client import Client

from pipeline.clickhouse import rollups as rollups_module
from pipeline.clickhouse.rollups import Rollups, minutes_of, slices
from pipeline.clickhouse.writer import Tables
from pipeline.local.clickhouse.embedded import EmbeddedStore
from pipeline.verify.store import StoredTables
from pipeline.worker.telemetry import WorkerMetrics
from schemas.rows import (
    CapacityCurveRow,
    FillsRow,
    FlowRow,
    OccupancyRow,
    RedundancyRow,
    Row,
    StreamHealthRow,
)
from schemas.settings import ClickHouse, Settings
from schemas.trust import TRUST_ORDER, Trust, worst
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


def recounted_fleet(rows: Iterable[Any], period: timedelta) -> dict[str, dict[Any, tuple[Any, ...]]]:
    """Likewise for the tables whose shards are added up."""
    newest: dict[Any, Any] = {}
    for row in (row for row in rows if hasattr(row, "shard")):
        name = getattr(row, "replica", None) or row.medium
        key = (type(row).__name__, row.window, name, row.shard)
        if key not in newest or row.version >= newest[key].version:
            newest[key] = row
    groups: defaultdict[Any, list[Any]] = defaultdict(list)
    seconds = int(period.total_seconds())
    for (kind, window, name, _), row in sorted(newest.items(), key=lambda item: item[0]):
        start = datetime.fromtimestamp(window.timestamp() // seconds * seconds, timezone.utc)
        groups[kind, start.replace(tzinfo=None), name].append(row)
    found: dict[str, dict[Any, tuple[Any, ...]]] = {
        "FillsRow": {},
        "RedundancyRow": {},
        "CapacityCurveRow": {},
    }
    for (kind, start, name), of_period in groups.items():
        tail = (worst(*(row.trust for row in of_period)), len(of_period))
        if kind == "FillsRow":
            figures: tuple[Any, ...] = (
                sum(row.filled_blocks for row in of_period),
                sum(row.reannounced_tokens for row in of_period),
                sum(row.transferred_again_tokens for row in of_period),
                sum(row.peer_at_receivers_tokens for row in of_period),
                sum(row.evicted_at_receivers_tokens for row in of_period),
                added_up([row.regret_hist for row in of_period]),
            )
        elif kind == "CapacityCurveRow":
            figures = (added_up([row.needed_hist for row in of_period]),)
        else:
            # Of an hour that of its last minute, in which a shard may have been silent.
            minute = of_period[-1].window.replace(second=0)
            last = {row.shard: row for row in of_period if row.window >= minute}.values()
            figures = (
                sum(row.owners_1 for row in last),
                sum(row.physical_tokens for row in last),
                sum(row.received_tokens for row in last),
            )
        found[kind][start, name] = (*figures, *tail)
    return found


def added_up(histograms: list[list[int]]) -> list[int]:
    length = max(map(len, histograms))
    return [sum(each[at] for each in histograms if at < len(each)) for at in range(length)]


def recounted(rows: Iterable[Any], period: timedelta) -> dict[str, dict[Any, tuple[Any, ...]]]:
    """What a period's row must say, from the newest version of each ten-second row."""
    newest: dict[Any, Any] = {}
    for row in rows:
        if hasattr(row, "shard"):
            continue
        key = (type(row).__name__, row.window, row.replica)
        if key not in newest or row.version >= newest[key].version:
            newest[key] = row
    groups: defaultdict[Any, list[Any]] = defaultdict(list)
    seconds = int(period.total_seconds())
    for (kind, window, replica), row in sorted(newest.items()):
        start = datetime.fromtimestamp(window.timestamp() // seconds * seconds, timezone.utc)
        groups[kind, start.replace(tzinfo=None), replica].append(row)
    found: dict[str, dict[Any, tuple[Any, ...]]] = {"OccupancyRow": {}, "FlowRow": {}, "StreamHealthRow": {}}
    for (kind, start, replica), of_period in groups.items():
        last = of_period[-1]
        trust = worst(*(row.trust for row in of_period))
        tail = (trust, len(of_period))
        if kind == "OccupancyRow":
            figures = (last.entries, last.blocks, max(row.blocks for row in of_period))
        elif kind == "FlowRow":
            length = max(len(row.lifetime_hist) for row in of_period)
            histogram = [
                sum(row.lifetime_hist[at] for row in of_period if at < len(row.lifetime_hist))
                for at in range(length)
            ]
            figures = (
                sum(row.stored_blocks for row in of_period),
                sum(row.evicted_tokens for row in of_period),
                histogram,
            )
        else:
            figures = (
                sum(row.batches for row in of_period),
                last.last_seq,
                max(row.lag_seconds for row in of_period),
            )
        found[kind][start, replica] = (*figures, *tail)
    return found


FIGURES = {
    "OccupancyRow": ("occupancy", "entries, blocks, blocks_max"),
    "FlowRow": ("flow", "stored_blocks, evicted_tokens, lifetime_hist"),
    "StreamHealthRow": ("stream_health", "batches, last_seq, lag_seconds"),
    "FillsRow": (
        "fills",
        "filled_blocks, reannounced_tokens, transferred_again_tokens, peer_at_receivers_tokens, "
        "evicted_at_receivers_tokens, regret_hist",
    ),
    "RedundancyRow": ("redundancy", "owners_1, physical_tokens, received_tokens"),
    "CapacityCurveRow": ("capacity_curve", "needed_hist"),
}


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
    written: list[Row] = []
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
        written += portion
    tables.close()
    for per, period in (("1m", timedelta(minutes=1)), ("1h", timedelta(hours=1))):
        expected = {**recounted(written, period), **recounted_fleet(written, period)}
        for kind, (family, figures) in FIGURES.items():
            name = "medium" if family == "redundancy" else "replica"
            query = f"SELECT window, {name}, {figures}, trust, windows FROM {database}.{family}_{per} FINAL"
            rows = store_client.query(query).result_rows
            assert {row[:2]: row[2:] for row in rows} == expected[kind], (per, kind)


async def test_what_a_killed_worker_wrote_is_due_until_another_recomputes_it(
    store: EmbeddedStore, store_client: Client, database: str
) -> None:
    settings = Settings(clickhouse=ClickHouse(url=store.url, database=database))
    rows = random_rows(random.Random(3), 1, range(6))
    minutes = {(family, NOW) for family, _ in FIGURES.values()}
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
        (family, NOW + timedelta(minutes=number)) for family, _ in FIGURES.values() for number in range(2)
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
    assert {*reader.minutes_due()} == {(family, NOW) for family, _ in FIGURES.values()}
    reader.close()
