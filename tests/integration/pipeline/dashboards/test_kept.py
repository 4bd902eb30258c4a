"""However old a range is, boards read it from rows that the store still keeps."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta, timezone

import clickhouse_connect
import pytest
from clickhouse_connect.driver.client import Client

from pipeline.dashboards.boards import BOARDS
from pipeline.dashboards.queries import RANGE
from pipeline.local.clickhouse.embedded import EmbeddedStore
from schemas.settings import Settings
from tests.support.inputs.board_rows import RunSql, runner
from tests.support.inputs.empty_tables import EmptyTables
from tests.support.inputs.large_fleet import LENGTHS, LargeFleet
from tests.support.suite.night import at_night

FLEET = LargeFleet(replicas=4, models=2, shards=2, prefixes=5)
LENGTH = timedelta(minutes=30)
NOW = datetime.now(timezone.utc)
SECONDS = {6: 10, 8: 60, 59: 60, 61: 3600, 700: 3600}
"""Age of a range in days to the windows that it is read from."""
WRITTEN = (6, 8, 61)
"""Ages that have rows: each is the first to be read from its windows."""
LISTS = {"health-streams", "model-capacity-gain"}
"""They list only what is large enough to matter, which by chance nothing of this fleet may be."""
SERIES = [
    panel for board in BOARDS for panel in board.panels if "_series(" in panel.sql and panel.id not in LISTS
]


@pytest.fixture(scope="module")
def tables(empty_tables: EmptyTables) -> Iterator[Settings]:
    with empty_tables.lent() as settings:
        yield settings


@pytest.fixture(scope="module")
def client(store: EmbeddedStore, tables: Settings) -> Iterator[Client]:
    """A client of tables that know the fleet, and nothing of what it did."""
    client = clickhouse_connect.get_client(
        dsn=store.url, database=tables.clickhouse.database, autogenerate_session_id=False
    )
    FLEET.write_state(client, NOW - timedelta(days=800))
    yield client
    client.close()


@pytest.fixture(scope="module")
def run(store: EmbeddedStore, tables: Settings, client: Client) -> RunSql:
    """Runs a panel on what the store keeps of an hour of each age."""
    for days in WRITTEN:
        hour = end_of(days).replace(minute=0)
        for seconds in LENGTHS:
            FLEET.write(client, seconds, hour, hour + timedelta(hours=1))
    let_go(client)
    return runner(store, tables)


def let_go(client: Client) -> None:
    """Let the store delete what it keeps no longer; by itself it would in some hours."""
    tables = "name FROM system.tables WHERE database = currentDatabase() AND total_rows > 0"
    for (name,) in client.query(f"SELECT {tables} AND create_table_query LIKE '%TTL%'").result_rows:
        client.command(f"OPTIMIZE TABLE {name} FINAL")


def end_of(days: int) -> datetime:
    return NOW.replace(minute=50, second=0, microsecond=0) - timedelta(days=days)


@pytest.fixture(scope="module")
def newest(run: RunSql) -> set[str]:
    """Ids of the panels that show anything of the newest of them."""
    return shown(run, min(WRITTEN))


def shown(run: RunSql, days: int) -> set[str]:
    return {panel.id for panel in SERIES if run(panel.id, panel.sql, **chosen(days)).result_rows}


def chosen(days: int) -> dict[str, datetime]:
    return {"from": end_of(days) - LENGTH, "to": end_of(days)}


@pytest.mark.parametrize("days", SECONDS)
@pytest.mark.usefixtures("client")
def test_windows_are_those_that_are_kept(store: EmbeddedStore, tables: Settings, days: int) -> None:
    found = runner(store, tables)("finest", f"SELECT seconds FROM finest({RANGE})", **chosen(days))
    assert found.result_rows == [(SECONDS[days],)]


@pytest.mark.parametrize("days", at_night(WRITTEN[1:]))
def test_an_old_range_shows_what_a_recent_one_does(run: RunSql, newest: set[str], days: int) -> None:
    assert len(newest) > 15
    assert shown(run, days) == newest
