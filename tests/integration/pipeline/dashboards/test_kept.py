"""However old a range is, boards read it from rows that are kept, and it looks like a recent one."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone

import pytest
from clickhouse_connect.driver.client import Client

from pipeline.dashboards.boards import BOARDS
from pipeline.local.clickhouse.embedded import EmbeddedStore
from tests.support.inputs.board_rows import migrated, runner
from tests.support.inputs.large_fleet import LENGTHS, LargeFleet

FLEET = LargeFleet(replicas=4, models=2, shards=2, prefixes=5)
LENGTH = timedelta(minutes=30)
SERIES = [panel for board in BOARDS for panel in board.panels if "_series(" in panel.sql]
KEPT = {10: timedelta(days=7), 60: timedelta(days=60), 3600: timedelta(days=730)}


@pytest.mark.parametrize(("days", "seconds"), [(6, 10), (8, 60), (59, 60), (61, 3600), (700, 3600)])
def test_a_range_is_read_from_what_is_kept(
    store: EmbeddedStore, store_client: Client, days: int, seconds: int
) -> None:
    settings = migrated(store)
    run = runner(store, settings)
    store_client.command(f"USE {settings.clickhouse.database}")
    now = datetime.now(timezone.utc)
    end = now.replace(minute=50, second=0, microsecond=0) - timedelta(days=days)
    FLEET.write_state(store_client, end - timedelta(days=1))
    for length in LENGTHS:
        if end - LENGTH > now - KEPT[length]:
            hour = end.replace(minute=0)
            FLEET.write(store_client, length, hour, hour + timedelta(hours=1))
    chosen = {"from": end - LENGTH, "to": end}
    sql = "SELECT seconds FROM finest(from = {from:DateTime('UTC')}, to = {to:DateTime('UTC')})"
    assert run("finest", sql, **chosen).result_rows == [(seconds,)]
    empty = {panel.id for panel in SERIES if not run(panel.id, panel.sql, **chosen).result_rows}
    assert empty == set()
