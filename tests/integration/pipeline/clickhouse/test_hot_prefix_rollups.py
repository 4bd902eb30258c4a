"""Minutes and hours of hot prefixes: the shards added up, the first ones of a period, replaced as a whole."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator
from datetime import datetime, timedelta, timezone
from typing import Any

import msgspec
import pytest
from clickhouse_connect.driver.client import Client

from pipeline.clickhouse.rollups import Rollups
from pipeline.clickhouse.writer import Tables
from pipeline.local.clickhouse.embedded import EmbeddedStore
from pipeline.worker.telemetry import WorkerMetrics
from schemas.fleet_rows import HotPrefixRow
from schemas.rows import Row
from schemas.settings import ClickHouse, Settings
from schemas.trust import TRUST_ORDER
from tests.support.rollups.hot_prefixes import LISTED
from tests.support.rollups.rows import FAMILIES, PERIODS, as_periods, rolled_up, stored

HOUR = datetime.now(timezone.utc).replace(minute=0, second=0, microsecond=0) - timedelta(hours=3)
FIGURES = "depth_blocks, owners, shared_tokens, duplicated_tokens, refilled_tokens, trust"


def row(number: int, prefix: int, shard: int = 0, **figures: Any) -> HotPrefixRow:
    plain = HotPrefixRow(
        HOUR + timedelta(seconds=10 * number), "d", "m", 0, "", prefix, shard, 1, 2, 16, 16, 0, 0, 1,
        "complete", 1,
    )  # fmt: skip
    return msgspec.structs.replace(plain, **figures)


def random_rows(
    rng: random.Random, version: int, windows: Iterable[int], prefixes: int
) -> Iterator[HotPrefixRow]:
    for number in windows:
        for prefix in rng.sample(range(prefixes), 40):
            for shard in range(1 + rng.randint(0, 1)):
                duplicated = rng.choice([0, rng.randint(1, 999)])
                yield row(
                    number,
                    prefix,
                    shard,
                    model=rng.choice("mn"),
                    lora=rng.choice(["", "sql"]),
                    depth_blocks=rng.randint(1, 99),
                    owners=rng.randint(0, 9),
                    shared_tokens=rng.randint(0, 99),
                    duplicated_tokens=duplicated,
                    refilled_tokens=rng.randint(0 if duplicated else 1, 999),
                    refilled_tokens_missing=rng.randint(0, 1),
                    trust=rng.choice(TRUST_ORDER),
                    version=version,
                )


class Written:
    """Tables of one database that rows are written to, and their rollups."""

    def __init__(self, store: EmbeddedStore, client: Client, database: str) -> None:
        self.settings = Settings(clickhouse=ClickHouse(url=store.url, database=database))
        self._client, self._database = client, database
        self._tables = Tables(self.settings.clickhouse)
        self._rollups = Rollups(self.settings.clickhouse, WorkerMetrics())

    async def write(self, rows: list[Row]) -> None:
        minutes = await self._rollups.announce(rows)
        await self._tables.insert(rows)
        self._rollups.written(minutes)
        await self._rollups.run_once()

    def rows(self, table: str) -> list[dict[str, Any]]:
        return stored(self._client, self._database, table)

    def view(self, name: str, start: datetime, end: datetime, columns: str = FIGURES) -> dict[Any, Any]:
        query = f"SELECT model, lora, first_block, {columns} FROM {self._database}.{name}"
        between = "(from = {from:DateTime('UTC')}, to = {to:DateTime('UTC')})"
        found = self._client.query(query + between, parameters={"from": start, "to": end}).result_rows
        return {each[:3]: each[3:] for each in found}


@pytest.fixture
def database(own: Settings) -> str:
    return own.clickhouse.database


@pytest.fixture
def written(store: EmbeddedStore, store_client: Client, database: str) -> Written:
    return Written(store, store_client, database)


@pytest.mark.parametrize(
    ("seed", "prefixes"), [(1, 45), pytest.param(2, 4 * LISTED, marks=pytest.mark.night)]
)
async def test_minutes_and_hours_equal_a_recount(seed: int, prefixes: int, written: Written) -> None:
    """With fewer prefixes than a period lists and with more; late rows, repeated ones and corrections."""
    rng = random.Random(seed)
    windows = range(0, 540, 4)
    first = list(random_rows(rng, 10, windows, prefixes))
    for portion in (
        first,
        list(random_rows(rng, 20, rng.sample(windows, 12), prefixes)),
        list(random_rows(rng, 5, rng.sample(windows, 12), prefixes)),
        list(random_rows(rng, 1, range(-9, 0), prefixes)),
        first,
    ):
        rng.shuffle(portion)
        await written.write(list(portion))
    fine = written.rows("hot_prefixes_10s")
    family = FAMILIES["hot_prefixes"]
    for per, length in PERIODS.items():
        assert as_periods(family, written.rows(f"hot_prefixes_{per}")) == rolled_up(family, length, fine), per
    longest = max(len(each["prefix"]) for each in written.rows("hot_prefixes_1h"))
    assert longest == 2 * prefixes if 2 * prefixes < LISTED else LISTED < longest <= 2 * LISTED


async def test_what_left_the_list_of_a_period_is_gone_from_it(written: Written) -> None:
    """The next window of the minute has more of others, so the first list counts no longer."""
    await written.write([row(0, prefix, duplicated_tokens=1) for prefix in range(LISTED)])
    assert written.rows("hot_prefixes_1h")[0]["prefix"] == list(range(LISTED))
    others = range(LISTED, 2 * LISTED)
    await written.write([row(1, prefix, duplicated_tokens=2) for prefix in others])
    for table in ("hot_prefixes_1m", "hot_prefixes_1h"):
        [found] = written.rows(table)
        assert (found["prefix"], found["windows"]) == (list(others), 2 * LISTED)


async def test_the_most_at_a_time_is_that_of_all_shards_together(written: Written) -> None:
    """Each shard has most in a window of its own; no window has both."""
    await written.write(
        [
            row(number, 7, shard, duplicated_tokens=1000 if number == shard else 10, refilled_tokens=1)
            for number in range(2)
            for shard in range(2)
        ]
    )
    for table in ("hot_prefixes_1m", "hot_prefixes_1h"):
        [found] = written.rows(table)
        assert (found["duplicated_tokens"], found["refilled_tokens"]) == ([1010], [4])


async def test_a_picture_says_the_same_of_every_table(written: Written) -> None:
    await written.write(list(random_rows(random.Random(3), 1, range(0, 360, 5), 40)))
    exact = written.view("hot_prefixes", HOUR, HOUR + timedelta(hours=1))
    assert exact
    for hours in (0, 8, 72):
        start = HOUR - timedelta(hours=hours)
        assert (
            written.view("hot_prefixes_series", start, HOUR + timedelta(minutes=59, seconds=50)) == exact
        ), hours
