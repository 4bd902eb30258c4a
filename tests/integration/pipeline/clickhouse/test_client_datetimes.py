"""A view's range as datetimes of Python, by ClickHouse's own client: with a zone, and without one."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta
from zoneinfo import ZoneInfo

import clickhouse_connect
import pytest
from clickhouse_connect.driver.client import Client

from pipeline.local.clickhouse.embedded import EmbeddedStore
from schemas.settings import Settings
from tests.support.inputs.board_rows import HOUR, hour_of_rows, write_rows
from tests.support.inputs.empty_tables import EmptyTables

SESSIONS = ("UTC", "Pacific/Honolulu", "Asia/Kolkata", "Asia/Tokyo")
"""None has an hour that its clock shows twice."""
BOUND = ("from = %(first)s, to = %(last)s", "from = {first:DateTime}, to = {last:DateTime}")
"""By the client, and by the server."""
FIRST, LAST = HOUR + timedelta(minutes=10), HOUR + timedelta(minutes=20)


@pytest.fixture(scope="module")
def tables(empty_tables: EmptyTables) -> Iterator[Settings]:
    with empty_tables.lent() as settings:
        write_rows(settings, hour_of_rows())
        yield settings


@pytest.fixture(params=SESSIONS)
def client(request: pytest.FixtureRequest, store: EmbeddedStore, tables: Settings) -> Iterator[Client]:
    """One of a server whose profile has the zone: the client asks it for the zone, and binds by that."""
    made = clickhouse_connect.get_client(
        dsn=store.url,
        database=tables.clickhouse.database,
        autogenerate_session_id=False,
        settings={"session_timezone": request.param},
    )
    made.server_tz = ZoneInfo(request.param)
    yield made
    made.close()


def found(client: Client, bound: str, first: datetime, last: datetime) -> tuple[int, int, int]:
    what = "count(), toUnixTimestamp(min(window)), toUnixTimestamp(max(window))"
    statement = f"SELECT {what} FROM occupancy({bound})"
    [row] = client.query(statement, parameters={"first": first, "last": last}).result_rows
    return row[0], row[1], row[2]


@pytest.mark.parametrize("bound", BOUND)
@pytest.mark.parametrize("zone", ["UTC", "Asia/Kathmandu"])
def test_one_with_a_zone_is_that_moment_in_any_session(client: Client, bound: str, zone: str) -> None:
    first, last = (one.astimezone(ZoneInfo(zone)) for one in (FIRST, LAST))
    assert found(client, bound, first, last) == (61 * 4, int(FIRST.timestamp()), int(LAST.timestamp()))


@pytest.mark.parametrize("bound", BOUND)
def test_one_without_is_the_clock_of_the_session(client: Client, bound: str) -> None:
    [[session]] = client.query("SELECT timezone()").result_rows
    first, last = (one.astimezone(ZoneInfo(session)).replace(tzinfo=None) for one in (FIRST, LAST))
    assert found(client, bound, first, last) == (61 * 4, int(FIRST.timestamp()), int(LAST.timestamp()))
