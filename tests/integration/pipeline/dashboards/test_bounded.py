"""No panel, annotation or alert reads or returns more than it must, whatever lies outside of its range."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from datetime import datetime, timedelta, timezone
from typing import Any, NamedTuple

import clickhouse_connect
import pytest
from clickhouse_connect.driver.client import Client

from pipeline.dashboards.alerts import ALERTS
from pipeline.dashboards.boards import BOARDS
from pipeline.dashboards.page.question import Question
from pipeline.dashboards.panel import Panel, used_parameters
from pipeline.dashboards.queries import MOST_LANES, TOP
from pipeline.local.clickhouse.embedded import EmbeddedStore
from tests.support.inputs.board_rows import migrated
from tests.support.inputs.large_fleet import LENGTHS, LargeFleet

pytestmark = pytest.mark.night

FLEET = LargeFleet(replicas=200, models=TOP + 5, shards=2, prefixes=20)
"""More models than a picture has places for, too."""
LENGTH = timedelta(minutes=10)
END = datetime.now(timezone.utc).replace(minute=30, second=0, microsecond=0) - timedelta(days=2)
RANGE = (END - LENGTH, END)
QUESTION = Question(*(int(moment.timestamp()) for moment in RANGE))
SOURCES = {10: 0, 60: 5_000, 3600: 50_000}
"""Sources without rows, besides the fleet's, with which a range as short as this is read from windows of such
a length (`finest`)."""
APART = {10: timedelta(hours=3), 60: timedelta(hours=3), 3600: timedelta(days=70)}
"""Tables are read by whole hours, those of hours by whole months: what lies further from the range than this
must not be read."""
STATE = ("sources", "hash_groups", "models", "prefill_settings")
"""Tables without a time: they have one row for each source, shard, model or change of its price."""
GRANULE = 8192
BUCKETS = 24
"""Of the fleet's histograms."""


class Asked(NamedTuple):
    """A statement, and a panel if it is one."""

    id: str
    sql: str
    panel: Panel | None = None


PANELS = {panel.id: Asked(panel.id, panel.sql, panel) for board in BOARDS for panel in board.panels}
NOTES = {note.id: Asked(note.id, note.sql) for board in BOARDS for note in board.annotations}
RULES = {alert.id: Asked(alert.id, alert.sql) for alert in ALERTS}
EVERYTHING = (*PANELS.values(), *NOTES.values(), *RULES.values())


class Counted(NamedTuple):
    """How much a statement returned and read."""

    rows: list[tuple[Any, ...]]
    read: int


class Stored:
    """A database with rows before, in and after the range."""

    def __init__(self, store: EmbeddedStore, seconds: int) -> None:
        self.seconds = seconds
        self.database = migrated(store).clickhouse.database
        self.client: Client = clickhouse_connect.get_client(
            dsn=store.url, database=self.database, autogenerate_session_id=False
        )
        FLEET.write_state(self.client, END - timedelta(days=100))
        self.client.command(
            "INSERT INTO sources (model, replica, opened_at, closed_at, trust) SELECT 'silent',"
            f" toString(number), toDateTime64('2020-01-01 00:00:00', 3, 'UTC'), now64(3), 'complete'"
            f" FROM numbers({SOURCES[seconds]})"
        )
        for each in LENGTHS:
            FLEET.write(self.client, each, *_whole(RANGE, each))
        self.inside = self.rows()
        self.asked = [each for each in EVERYTHING if seconds == 10 or "_series(" in each.sql]
        """Other statements read the same tables whichever is the finest that is small enough."""
        self.write_outside(times=1)

    def write_outside(self, *, times: int, further: int = 0) -> None:
        """Write so many times the rows that lie in the range before it, and as many after it."""
        for seconds in {10, self.seconds}:
            length = times * max(LENGTH, timedelta(seconds=seconds))
            gap = APART[seconds] + further * length
            FLEET.write(self.client, seconds, RANGE[0] - gap - length, RANGE[0] - gap)
            FLEET.write(self.client, seconds, RANGE[1] + gap, RANGE[1] + gap + length)

    def rows(self) -> Mapping[str, int]:
        return self._by_table("sum(rows)")

    def parts(self) -> Mapping[str, int]:
        return self._by_table("count()")

    def _by_table(self, figure: str) -> Mapping[str, int]:
        found = self.client.query(
            f"SELECT table, {figure} FROM system.parts WHERE database = {{name:String}} AND active"
            " GROUP BY table",
            parameters={"name": self.database},
        )
        return dict(found.result_rows)

    def run(self, asked: Asked) -> Counted:
        result = self.client.query(asked.sql, parameters=self._parameters(asked))
        return Counted(list(result.result_rows), int(result.summary["read_rows"]))

    def tables(self, asked: Asked) -> list[str]:
        """Return what a statement reads, a table as often as it does."""
        # Printed prettily, a plan of many views within one another takes gigabytes.
        explained = f"EXPLAIN pretty = 0, indexes = 1 {asked.sql}"
        plan = self.client.query(explained, parameters=self._parameters(asked))
        steps = re.split(r"ReadFromMergeTree \(\w+\.", "\n".join(line for (line,) in plan.result_rows))[1:]
        return [step.split(")")[0] for step in steps if "Parts:" in step]

    def _parameters(self, asked: Asked) -> dict[str, Any]:
        return QUESTION.parameters(used_parameters(asked.id, asked.sql))


def _whole(between: tuple[datetime, datetime], seconds: int) -> tuple[datetime, datetime]:
    """Return the range that all windows of such a length in which a range lies have together."""
    first, last = (int(moment.timestamp()) for moment in between)
    bounds = (first // seconds * seconds, -(-last // seconds) * seconds)
    start, end = (datetime.fromtimestamp(bound, timezone.utc) for bound in bounds)
    return start, end


@pytest.fixture(scope="module", params=LENGTHS, ids=LENGTHS.get)
def stored(request: pytest.FixtureRequest, store: EmbeddedStore) -> Iterator[Stored]:
    """Read from windows of each length."""
    database = Stored(store, request.param)
    yield database
    database.client.command(f"DROP DATABASE {database.database} SYNC")
    database.client.close()


def most_rows(asked: Asked, seconds: int) -> int:
    """Return how many rows there may be at most, as the statement and the kind of picture have it."""
    lanes = asked.panel is not None and asked.panel.kind == "lanes"
    # Lanes are narrow, so each of their points stands for four of other charts.
    width = -(-QUESTION.step * (4 if lanes else 1) // seconds) * seconds
    points = LENGTH // timedelta(seconds=width) + 2
    if asked.panel is None:
        # What happened at a point of time is one row of each kind; a rule looks at each source.
        return points * (1 + asked.sql.count("UNION ALL")) if asked.id in NOTES else FLEET.replicas
    limit = re.search(r"\nLIMIT (\d+)$", asked.sql)
    match asked.panel.kind:
        case "stat":
            return 1
        case "table" | "findings" if limit:
            return int(limit[1])
        case "answer":
            return 4
        case "table":
            return TOP * max(1, asked.sql.count(f"<= {TOP}"))
        case "bar":
            return TOP + 1
        case "heatmap":
            return points * BUCKETS
        case "lanes":
            return points * MOST_LANES
        case _:
            return points * (TOP + 1)


def test_bounded_whatever_lies_outside_of_the_range(stored: Stored) -> None:
    near = {asked.id: stored.run(asked) for asked in stored.asked}
    tables = {asked.id: stored.tables(asked) for asked in stored.asked}
    state = sum(rows for table, rows in stored.rows().items() if table in STATE)
    parts = stored.parts()
    for asked in stored.asked:
        assert len(near[asked.id].rows) <= most_rows(asked, stored.seconds), asked.id
        inside = sum(stored.inside[table] + 2 * GRANULE * parts[table] for table in tables[asked.id])
        # The finest table that is small enough is looked up in the sources, which is no part of the plan.
        assert near[asked.id].read <= inside + 10 * state, (asked.id, tables[asked.id])
    stored.write_outside(times=10, further=1)
    parts = stored.parts()
    for asked in stored.asked:
        far = stored.run(asked)
        rounding = sum(GRANULE * parts[table] for table in tables[asked.id])
        assert far.read <= near[asked.id].read + rounding, asked.id
        assert sorted(far.rows, key=str) == sorted(near[asked.id].rows, key=str), asked.id
