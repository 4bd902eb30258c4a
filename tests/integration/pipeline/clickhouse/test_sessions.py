"""Views answer a reader alike, whatever the zone of its session and the profile of its user."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator
from datetime import datetime, timedelta, timezone
from typing import Any

import clickhouse_connect
import pytest
from clickhouse_connect.driver.client import Client
from clickhouse_connect.driver.exceptions import DatabaseError
from prometheus_client import generate_latest

from pipeline.advice.reading import read_advice
from pipeline.clickhouse.client import connect
from pipeline.clickhouse.views import IN_UTC, PINNED
from pipeline.dashboards.alerts import ALERTS
from pipeline.dashboards.boards import BOARDS
from pipeline.dashboards.fleet_metrics.collection import FleetMetrics
from pipeline.dashboards.fleet_metrics.families import FAMILIES
from pipeline.dashboards.grafana.query import grafana_sql
from pipeline.dashboards.page.answers import Answers
from pipeline.dashboards.page.question import Question
from pipeline.doctor.asking.store import ask_store
from pipeline.local.clickhouse.embedded import EmbeddedStore
from schemas.settings import ClickHouse, Settings
from tests.support.grafana.variables import Range, sent
from tests.support.inputs.board_rows import HOUR, hour_of_rows, runner, write_rows
from tests.support.inputs.empty_tables import EmptyTables
from tests.support.suite.night import first_by_day

ZONES = ("America/New_York", "Asia/Tokyo", "Asia/Kolkata")
NO_TIME = "to is no time: give seconds since the epoch|cannot be parsed as DateTime"
"""As the view says it, or ClickHouse before it."""
END = HOUR + timedelta(minutes=59, seconds=59)
STRANGE = dict.fromkeys(PINNED, 1) | {
    "date_time_input_format": "best_effort",
    "date_time_output_format": "iso",
    "union_default_mode": "DISTINCT",
    "any_join_distinct_right_table_keys": 1,
}
"""All of a profile at once that could change an answer."""
VALUES = {
    "from": str(int(HOUR.timestamp())),
    "to": str(int(END.timestamp())),
    "before": str(int((HOUR - timedelta(hours=1)).timestamp())),
    "step": "60",
    "seconds": "10",
    "length": "10",
    "seconds_from_hour_before": "10",
    "seconds_before": "10",
    "models": "[]",
    "replicas": "[]",
}
_NOVEMBER = datetime(HOUR.year + 1, 11, 1, 5, 30, tzinfo=timezone.utc)
FOLD = _NOVEMBER + timedelta(days=(6 - _NOVEMBER.weekday()) % 7)
"""Half past one in New York, for the first time; an hour later it is again. Rows that are old are deleted."""


@pytest.fixture(scope="module")
def tables(empty_tables: EmptyTables) -> Iterator[Settings]:
    with empty_tables.lent() as settings:
        write_rows(settings, hour_of_rows())
        yield settings


@pytest.fixture(scope="module")
def client(store: EmbeddedStore, tables: Settings) -> Iterator[Client]:
    made = clickhouse_connect.get_client(
        dsn=store.url, database=tables.clickhouse.database, autogenerate_session_id=False
    )
    yield made
    made.close()


def plain(value: Any) -> Any:
    """Sums of floating-point numbers depend on their order, and so do their last digits."""
    if isinstance(value, datetime):
        return (value if value.tzinfo else value.replace(tzinfo=timezone.utc)).timestamp()
    if isinstance(value, float):
        return f"{value:.9g}"
    return [plain(each) for each in value] if isinstance(value, (list, tuple)) else value


def rows(client: Client, statement: str, **profile: Any) -> list[str]:
    found = client.query(statement, settings=profile)
    assert list(found.column_names) == list(dict.fromkeys(found.column_names))
    return sorted(repr(plain(row)) for row in found.result_rows)


@pytest.fixture
def lately(client: Client) -> Iterator[None]:
    """Rows that end now, and those of a replica that lost batches in the hour and is complete again."""
    first = int(VALUES["from"])

    def copied(table: str, window: int, replaced: str) -> None:
        source = f"SELECT * FROM {table} FINAL WHERE window = {window} AND replica = 'a'"
        client.command(f"INSERT INTO {table} SELECT * REPLACE ({replaced}) FROM ({source})")

    copied("fills_10s", first, "now('UTC') - 30 AS window, 'now' AS replica")
    for table in ("occupancy_10s", "stream_health_10s"):  # for as long as all views take
        copied(table, first, "now('UTC') + 300 AS window, 'now' AS replica")
    copied("stream_health_1m", first + 600, "'lost' AS replica, 'degraded' AS trust, 3 AS lost_batches")
    copied("stream_health_1m", first + 1800, "'lost' AS replica")
    client.command("INSERT INTO fleet_settings (name, value) VALUES ('horizon_seconds', 7200)")
    yield
    for table in ("occupancy_10s", "stream_health_10s", "fills_10s", "stream_health_1m"):
        client.command(
            f"ALTER TABLE {table} DELETE WHERE replica IN ('now', 'lost') SETTINGS mutations_sync = 1"
        )
    client.command("TRUNCATE TABLE fleet_settings")


@pytest.mark.night
@pytest.mark.usefixtures("lately")
def test_every_view_has_the_same_rows_under_any_profile(client: Client) -> None:
    views = client.query(
        "SELECT name, create_table_query FROM system.tables WHERE database = currentDatabase()"
        " AND engine = 'View'"
    ).result_rows
    assert len(views) > 80
    empty = set()
    for name, text in views:
        # What only other views ask is read through those.
        if name.endswith(IN_UTC):
            continue
        used = sorted(set(re.findall(r"\{(\w+):", text)))
        source = f"{name}({', '.join(f'{each} = {VALUES[each]}' for each in used)})" if used else name
        expected = rows(client, f"SELECT * FROM {source}")
        assert rows(client, f"SELECT * FROM {source}", session_timezone=ZONES[2], **STRANGE) == expected, name
        empty |= set() if expected else {name}
    # Nothing new, and nothing that restarted for a common reason.
    assert empty <= {
        "coinciding_restarts", "coinciding_restarts_windows", "named_prefixes", "new_prefixes",
        "new_prefixes_windows",
    }  # fmt: skip


@pytest.mark.parametrize("zone", ZONES)
@pytest.mark.parametrize(
    "written",
    [
        "toDateTime({0})",
        "fromUnixTimestamp64Milli({0}123)",
        "toDateTime64({0}, 3)",
        "{0}",
        "'{0}'",
        "'{0}.25'",
        "toUnixTimestamp(toDateTime({0}, 'UTC'))",
        "formatDateTime(toDateTime({0}), '%Y-%m-%d %H:%i:%S')",
        "formatDateTime(toDateTime({0}), '%Y-%m-%dT%H:%i:%SZ', 'UTC')",
        "formatDateTime(toDateTime({0}), '%Y-%m-%d %H:%i:%S+09:00', 'Asia/Tokyo')",
        "toDateTime({0}) - INTERVAL 0 SECOND",
    ],
)
def test_a_moment_may_be_written_in_many_ways(client: Client, zone: str, written: str) -> None:
    count = "SELECT count(), toUnixTimestamp(min(window)), toUnixTimestamp(max(window))"
    first, last = int(HOUR.timestamp()) + 600, int(HOUR.timestamp()) + 1200
    range_ = f"from = {written.format(first)}, to = {written.format(last)}"
    [found] = client.query(
        f"{count} FROM occupancy({range_})", settings={"session_timezone": zone}
    ).result_rows
    assert found == (61 * 4, first, last)


@pytest.mark.parametrize("zone", ZONES)
def test_ranges_that_end_now_are_those_of_the_session(client: Client, tables: Settings, zone: str) -> None:
    client.command(
        "INSERT INTO occupancy_10s (window, model, replica, medium, blocks, tokens, trust)"
        " SELECT now() - 20, 'm', 'now', 'gpu', 5, 80, 'complete'"
    )
    for statement in (
        "SELECT blocks FROM occupancy(from = now() - INTERVAL 10 MINUTE, to = now()) WHERE replica = 'now'",
        "SELECT blocks FROM occupancy(from = now64() - INTERVAL 1 HOUR, to = now64()) WHERE replica = 'now'",
        "SELECT any(blocks) FROM occupancy_now WHERE replica = 'now'",
    ):
        found = client.query(statement, settings={"session_timezone": zone}).result_rows
        assert {row[0] for row in found} == {5}, statement
    with pytest.raises(DatabaseError, match="to is the clock of UTC, and this session has another: give"):
        client.query(
            "SELECT count() FROM occupancy(from = now() - INTERVAL 1 HOUR, to = now('UTC'))",
            settings={"session_timezone": zone},
        )
    client.command("ALTER TABLE occupancy_10s DELETE WHERE replica = 'now' SETTINGS mutations_sync = 1")


def test_a_range_over_a_change_of_daylight_saving_and_in_the_hour_that_is_twice(client: Client) -> None:
    first = int(FOLD.timestamp())
    client.command(
        "INSERT INTO occupancy_10s (window, model, replica, medium, blocks, tokens, trust)"
        f" SELECT toDateTime({first} - 7200 + 600 * number, 'UTC'), 'm', 'fold', 'gpu', 5, 80, 'complete'"
        " FROM numbers(30)"
    )
    count = "SELECT count() FROM occupancy(from = {}, to = {}) WHERE replica = 'fold'"
    session = {"session_timezone": "America/New_York"}

    def counted(statement: str) -> int:
        return int(client.query(statement, settings=session).result_rows[0][0])

    for clock in ("toDateTime({})", "{}"):
        assert counted(count.format(clock.format(first - 7200), clock.format(first + 7200))) == 25
    assert counted(count.format(first, first + 3599)) == 6
    assert counted(count.format(first + 3600, first + 7199)) == 6
    for at in (first, first + 3600):
        with pytest.raises(
            DatabaseError, match="from is in an hour that the clock of this session shows twice"
        ):
            client.query(count.format(f"toDateTime({at})", first + 7200), settings=session)
    with pytest.raises(DatabaseError, match=NO_TIME):
        client.query(count.format(first, "'yesterday'"), settings=session)
    client.command("ALTER TABLE occupancy_10s DELETE WHERE replica = 'fold' SETTINGS mutations_sync = 1")


@pytest.mark.parametrize("zone", first_by_day(ZONES))
def test_boards_alerts_and_metrics_of_a_store_in_another_zone(
    store: EmbeddedStore, client: Client, tables: Settings, zone: str
) -> None:
    """Cheap panels of each kind: what they are asked is made in one place (`queries.RANGE`, `LATEST`)."""
    here, there = runner(store, tables), runner(store, tables, session_timezone=zone)
    panels = {panel.id: panel.sql for board in BOARDS for panel in board.panels}
    asked = {
        id: panels[id] for id in ("fleet-sources", "fleet-gpu-full", "fleet-evicted-now", "replica-flow")
    }
    asked |= {family.name: family.sql for family in FAMILIES if family.name in ("newest", "streams", "fills")}
    assert len(asked) == 6
    for name, sql in asked.items():
        expected = [plain(row) for row in here(name, sql).result_rows]
        assert expected
        assert [plain(row) for row in there(name, sql).result_rows] == expected, name
    of_grafana = Range(HOUR, END, 60)
    for alert in ALERTS:
        statement = sent(grafana_sql(alert.id, alert.sql), (), {}, of_grafana)
        expected = plain(client.query(statement).result_rows)
        assert expected, alert.id
        assert plain(client.query(statement, settings={"session_timezone": zone}).result_rows) == expected


@pytest.mark.night
def test_page_advice_metrics_and_doctor_of_a_store_in_another_zone(
    tables: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    def answered(store: ClickHouse) -> tuple[Any, ...]:
        answers = Answers(store, 100)
        question = Question(int(HOUR.timestamp()), int(END.timestamp()))
        panel = next(panel for board in BOARDS for panel in board.panels if panel.id == "replica-flow")

        async def ask() -> tuple[Any, ...]:
            shown = await answers.of_panel(panel, question)
            told = generate_latest(await FleetMetrics(answers, lambda: END.timestamp() + 30).figures())
            doctor = await ask_store(store, 60)
            return (
                shown.columns,
                told,
                doctor.newest_window,
                doctor.unanswered,
                abs(doctor.clock or 0.0) < 20,
            )

        found = asyncio.run(ask())
        client = connect(store)
        zone = client.query("SELECT timezone()").result_rows[0][0]
        advice = read_advice(client, store.database, question.start, question.end)
        client.close()
        return zone, advice, *found

    here = answered(tables.clickhouse)
    made = clickhouse_connect.get_client
    monkeypatch.setattr(
        clickhouse_connect,
        "get_client",
        lambda **named: made(**{**named, "settings": {"session_timezone": ZONES[2]}}),
    )
    there = answered(tables.clickhouse)
    assert (here[0].removeprefix("Etc/"), there[0]) == ("UTC", ZONES[2])
    assert there[1:] == here[1:]
    assert b"kvlens_fleet_" in here[3]
    assert here[4] == END.timestamp() - 9
    assert not here[5]
