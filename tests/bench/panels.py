"""Every panel and alert on a fleet of 2,000 replicas and a day of rows: time, and rows read and returned."""

from __future__ import annotations

import time
from datetime import datetime, timedelta, timezone
from statistics import median, quantiles

import clickhouse_connect
from clickhouse_connect.driver.client import Client
from figures import Figures

from pipeline.clickhouse import migrations
from pipeline.dashboards.alerts import ALERTS
from pipeline.dashboards.boards import BOARDS
from pipeline.dashboards.page.question import Question
from pipeline.dashboards.panel import used_parameters
from schemas.settings import ClickHouse, Settings
from tests.support.inputs.large_fleet import LargeFleet

FLEET = LargeFleet(replicas=2000, models=10, shards=8, prefixes=40)
DAY = timedelta(days=1)
FINE = timedelta(hours=1)
"""How far back there are ten-second rows: no panel reads any that are older."""
RANGES = {
    "5 min": timedelta(minutes=5),
    "15 min": timedelta(minutes=15),
    "1 h": timedelta(hours=1),
    "6 h": timedelta(hours=6),
    "1 day": DAY,
}
"""The first three are read from minutes, the others from hours; ten-second rows by what shows the present."""
DATABASE = "panels"
MERGED_SECONDS = 120.0
STILL_SECONDS = 5.0
"""Without a merge: between two of them there is none for a moment."""
TIMES = 3


def run(figures: Figures, store_url: str) -> None:
    settings = Settings(clickhouse=ClickHouse(url=store_url, database=DATABASE))
    migrations.apply(settings)
    client = clickhouse_connect.get_client(dsn=store_url, database=DATABASE, autogenerate_session_id=False)
    # Tables are sorted by hour first, so a range costs most when the hour that it ends in is full.
    full = datetime.now(timezone.utc).replace(minute=0, second=0, microsecond=0)
    began = time.perf_counter()
    FLEET.write_day(client, full, fine=FINE, day=DAY)
    figures.add("panels: rows of the fleet", rows_of(client), "rows")
    figures.add("panels: writing them took", time.perf_counter() - began, "s")
    wait_merged(client)
    now = full - timedelta(seconds=1)
    panels = [panel for board in BOARDS for panel in board.panels]
    notes = [(note.id, note.sql) for board in BOARDS for note in board.annotations]
    # A statement of which several panels show parts is asked once, by the page and by Grafana.
    shown = {(one.shared or one).id: (one.shared or one).sql for one in panels}
    for name, length in RANGES.items():
        question = Question(int((now - length).timestamp()), int(now.timestamp()))
        took = [
            measured(figures, f"{owner}, {name}", client, owner, sql, question)
            for owner, sql in (*shown.items(), *notes)
        ]
        summed_up(figures, f"panels, {name}", took)
    took = []
    for alert in ALERTS:
        start = now - timedelta(minutes=alert.over_minutes)
        question = Question(int(start.timestamp()), int(now.timestamp()))
        took.append(measured(figures, f"alert {alert.id}", client, alert.id, alert.sql, question))
    summed_up(figures, "alerts", took)
    client.command(f"DROP DATABASE {DATABASE} SYNC")
    client.close()


def measured(figures: Figures, name: str, client: Client, owner: str, sql: str, question: Question) -> float:
    """Run a statement as the page does; return the seconds it took, the median of a few times."""
    parameters = question.parameters(used_parameters(owner, sql))
    times = []
    for _ in range(TIMES):
        began = time.perf_counter()
        result = client.query(sql, parameters=parameters, settings={"database": DATABASE})
        times.append(time.perf_counter() - began)
    took = median(times)
    read = int(result.summary.get("read_rows", 0))
    figures.add(name, took, f"s, {read:,} rows read, {len(result.result_rows)} returned")
    return took


def summed_up(figures: Figures, name: str, took: list[float]) -> None:
    figures.add(f"{name}: p50", quantiles(took, n=20)[9], "s")
    figures.add(f"{name}: p95", quantiles(took, n=20)[18], "s")


def wait_merged(client: Client) -> None:
    """Wait for merges, which a store that is filled in a day has done long ago."""
    until = time.monotonic() + MERGED_SECONDS
    merging = f"SELECT count() FROM system.merges WHERE database = '{DATABASE}'"
    still_since = time.monotonic()
    while (now := time.monotonic()) < until and now < still_since + STILL_SECONDS:
        time.sleep(0.2)
        if int(str(client.command(merging))):
            still_since = time.monotonic()


def rows_of(client: Client) -> int:
    counted = client.command(f"SELECT sum(rows) FROM system.parts WHERE database = '{DATABASE}' AND active")
    return int(str(counted))
