"""Views of objects, on rows whose figures are easy to add up."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import datetime, timedelta, timezone
from typing import Any

import pytest
from clickhouse_connect.driver.client import Client

from pipeline.clickhouse.writer import Tables
from pipeline.local.clickhouse.embedded import EmbeddedStore
from schemas.rows import ObjectsRow
from schemas.settings import ClickHouse, Settings

HOUR = datetime.now(timezone.utc).replace(minute=0, second=0, microsecond=0) - timedelta(hours=3)
MIB = 1 << 20


def row(number: int, medium: str = "cpu", group: int = 0, **figures: Any) -> ObjectsRow:
    at = HOUR + timedelta(seconds=10 * number)
    said: dict[str, Any] = dict.fromkeys(ObjectsRow.__struct_fields__[6:-3], 0)
    said |= {"uses_hist": [], "reuse_hist": [], "needed_hist": [], **figures}
    return ObjectsRow(
        at, "m", "r", 0, medium, group, **said, trust="complete", trust_since=at, version=number
    )


Ask = Callable[[list[ObjectsRow], str], list[tuple[Any, ...]]]


@pytest.fixture
def database(own: Settings) -> str:
    return own.clickhouse.database


@pytest.fixture
def ask(store: EmbeddedStore, store_client: Client, database: str) -> Ask:
    """Insert rows and return what a statement says of the hour."""
    settings = Settings(clickhouse=ClickHouse(url=store.url, database=database))

    async def insert(rows: list[ObjectsRow]) -> None:
        tables = Tables(settings.clickhouse)
        await tables.insert(rows)
        tables.close()

    def asked(rows: list[ObjectsRow], statement: str) -> list[tuple[Any, ...]]:
        asyncio.run(insert(rows))
        of_hour = f"(from = '{HOUR:%F %T}', to = '{HOUR + timedelta(minutes=59):%F %T}'"
        text = statement.replace("{hour}", of_hour).replace("{}", database)
        return [tuple(one) for one in store_client.query(text).result_rows]

    return asked


def test_groups_add_up_but_for_tokens_and_hits_are_told_where_they_are_known(ask: Ask) -> None:
    rows = [
        row(0, "disk", 1, objects=3, bytes=3 * MIB, capacity_bytes=10 * MIB, stored_objects=1,
            stored_bytes=MIB, accesses=3, accessed_tokens=768, accessed_bytes=3 * MIB, hits=3, hit_tokens=768,
            hit_bytes=3 * MIB),
        row(0, "disk", 2, objects=2, bytes=4 * MIB, capacity_bytes=10 * MIB, stored_objects=0, accesses=0),
        row(1, "disk", 1, objects=3, bytes=3 * MIB, stored_objects=2, accesses=1, hits=0),
        row(2, "disk", 1, objects=3, bytes=3 * MIB),
    ]  # fmt: skip
    found = ask(
        rows,
        "SELECT objects, bytes, capacity_bytes, stored_objects, accesses, accessed_tokens, hits, hit_tokens, "
        "hit_bytes, hit_rate FROM {}.object_use{hour}) ORDER BY window",
    )
    assert found == [
        (5, 7 * MIB, 10 * MIB, 1, 3, 768, 3, 768, 3 * MIB, 0.75),
        (3, 3 * MIB, 0, 2, 1, 0, None, None, None, None),
        (3, 3 * MIB, 0, 0, 0, 0, None, None, None, None),
    ]


def test_the_curve_says_what_each_size_of_cache_keeps_and_loses(ask: Ask) -> None:
    rows = [
        row(0, group=1, capacity_bytes=9 * MIB, accesses=7, needed_hist=[4, 0, 3]),
        row(0, group=2, capacity_bytes=9 * MIB, accesses=2, needed_hist=[0, 2]),
        row(5, group=1, capacity_bytes=8 * MIB, accesses=1, needed_hist=[0, 0, 0, 1]),
        row(5, "disk", accesses=0),
    ]
    found = ask(
        rows,
        "SELECT medium, cache_mib, kept_accesses, lost_accesses, capacity_bytes FROM {}.object_curve{hour}) "
        "ORDER BY medium, cache_mib",
    )
    assert found == [
        ("cpu", 1, 4, 6, 9 * MIB),
        ("cpu", 2, 6, 4, 9 * MIB),
        ("cpu", 4, 9, 1, 9 * MIB),
        ("cpu", 8, 10, 0, 9 * MIB),
    ]


def test_a_series_has_the_time_of_its_picture(ask: Ask) -> None:
    rows = [row(number, stored_objects=number) for number in range(12)]
    found = ask(
        rows,
        "SELECT time, width, sum(stored_objects) FROM {}.object_series{hour}, step = 60) "
        "GROUP BY time, width ORDER BY time",
    )
    minute = HOUR + timedelta(minutes=1)
    plain = [(at.replace(tzinfo=timezone.utc), *rest) for at, *rest in found]
    assert plain == [(HOUR, 60, 15), (minute, 60, 51)]
