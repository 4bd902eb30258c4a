"""What engines said on their pages, as the doctor reads it from the tables."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone

import msgspec
import pytest
from clickhouse_connect.driver.client import Client

from pipeline.doctor.asking.store import ask_store
from pipeline.doctor.facts import EngineFacts
from schemas.rows import EngineCountersRow, FlowRow, OccupancyRow, SourceRow
from schemas.settings import Settings
from tests.support.suite.night import by_day


class Told:
    """Rows of an engine, the newest of a window a minute ago."""

    def __init__(self) -> None:
        now = datetime.now(timezone.utc).replace(microsecond=0)
        self.window = now - timedelta(seconds=now.second % 10 + 60)
        self.opened = now - timedelta(minutes=30)

    def source(self) -> SourceRow:
        return SourceRow(
            "m",
            "a",
            0,
            1,
            self.opened,
            None,
            "",
            "vllm",
            "map",
            "m/x/default",
            "",
            "",
            0,
            9,
            [],
            "complete",
            self.opened,
            5,
        )

    def counters(
        self, ago: timedelta, queries: int, hits: int, external: int | None = None
    ) -> EngineCountersRow:
        other = None if external is None else 2 * external
        return EngineCountersRow(
            self.window - ago, "m", "a", 0, queries, hits, other, external, 1000, 16, 0.5, *[None] * 7, 5
        )

    def held(self, group: int, entries: int) -> OccupancyRow:
        return OccupancyRow(
            self.window,
            "m",
            "a",
            0,
            "gpu",
            group,
            16,
            entries,
            entries,
            16 * entries,
            0,
            1000,
            False,
            False,
            "complete",
            self.opened,
            5,
        )

    def stored(self, tokens: int) -> FlowRow:
        figures = (0, tokens, 0, 0, 0, 0, 0, 0, 0, 0)
        return FlowRow(self.window, "m", "a", 0, "gpu", 0, *figures, [], "complete", self.opened, 5)

    def readings(self) -> list[EngineCountersRow]:
        return [
            # Of the life before, when counters were higher.
            self.counters(timedelta(minutes=40), 9_000_000, 8_000_000),
            self.counters(timedelta(minutes=20), 1000, 100, 10),
            self.counters(timedelta(), 501_000, 200_100, 50_010),
        ]


@pytest.mark.parametrize("groups", by_day([1, 2], [2]))
async def test_readings_of_the_present_life_beside_the_tables(
    store_client: Client, own: Settings, groups: int
) -> None:
    clickhouse, database = own.clickhouse, own.clickhouse.database
    told = Told()
    occupancy = [told.held(group, 700) for group in range(groups)]
    for row in (told.source(), *told.readings(), *occupancy, told.stored(320_000)):
        columns = msgspec.structs.asdict(row)
        store_client.insert(f"{database}.{row.TABLE}", [list(columns.values())], column_names=list(columns))
    facts = await ask_store(clickhouse, 30)
    assert not facts.unanswered
    assert facts.engines == {
        ("a", 0): EngineFacts(
            capacity_blocks=1000,
            usage=0.5,
            counters={"prefix cache": (200_100, 501_000), "external cache": (50_010, 100_020)},
            computed_tokens=250_000,
            # Groups may share physical blocks, so several are not compared.
            entries=700 if groups == 1 else None,
            stored_tokens=320_000,
            trust="complete",
        )
    }
    assert facts.counters_fell.keys() == {("a", 0)}


async def test_any_counter_that_falls_is_told(store_client: Client, own: Settings) -> None:
    clickhouse, database = own.clickhouse, own.clickhouse.database
    told = Told()
    readings = [
        told.counters(timedelta(minutes=ago), 1000, hits)
        for ago, hits in ((9, 10), (8, 20), (7, 15), (6, 15))
    ]
    for row in readings:
        columns = msgspec.structs.asdict(row)
        store_client.insert(f"{database}.{row.TABLE}", [list(columns.values())], column_names=list(columns))
    facts = await ask_store(clickhouse, 30)
    assert facts.counters_fell == {("a", 0): ((told.window - timedelta(minutes=7)).timestamp(),)}
