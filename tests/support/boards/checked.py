"""Looks for contradictions on the boards of a running demo or `kvlens up`, or of any store.

python -m tests.support.boards.checked --data-dir .kvlens/demo --seconds 300
python -m tests.support.boards.checked --url http://127.0.0.1:8123 --database kvlens --seconds 3600
"""

from __future__ import annotations

import argparse
import time
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from pipeline.cli.options import load_running
from pipeline.dashboards.queries import RANGE
from schemas.settings import ClickHouse, Settings
from tests.support.boards.contradictions import contradictions
from tests.support.boards.shown import Ask, Shown
from tests.support.inputs.board_rows import runner

SETTLED_SECONDS = 30
"""Rows of windows that ended before that do not change while panels are asked one after the other."""
MOST_LOOKS = 5
TABLES = ("fills_10s", "occupancy_10s", "flow_10s", "stream_health_10s")


def latest(seconds: int, now: float) -> tuple[datetime, datetime]:
    """Return the range of so many seconds that ends with the newest settled window, both ends included."""
    end = int(now - SETTLED_SECONDS) // 10 * 10
    return (
        datetime.fromtimestamp(end - seconds, timezone.utc),
        datetime.fromtimestamp(end - 1, timezone.utc),
    )


def of_store(store: ClickHouse, start: datetime, end: datetime) -> list[str]:
    """Return the contradictions of a range, both ends included.

    Panels are asked again where what they rest on changed meanwhile: a busy machine writes rows late, and the
    cost of a token moves with each scrape of a fleet's first minutes.
    """
    ask = runner(store, Settings(clickhouse=store))
    for _ in range(MOST_LOOKS):
        before = _rests_on(ask, start, end)
        found = contradictions(Shown(ask, start, end))
        if not found or _rests_on(ask, start, end) == before:
            break
    return found


def _rests_on(ask: Ask, start: datetime, end: datetime) -> tuple[list[int], list[tuple[Any, ...]]]:
    """Return the newest version of each table's rows of a range, and what a token costs on each replica."""
    between = {"from": start, "to": end}
    when = "window BETWEEN {from:DateTime} AND {to:DateTime}"
    newest = [f"SELECT toUInt64(max(version)) FROM {table} WHERE {when}" for table in TABLES]
    written = [ask("written", statement, **between).result_rows[0][0] for statement in newest]
    costs = f"SELECT model, replica, gpu_seconds_per_token FROM prefill_rates({RANGE}) ORDER BY ALL"
    return written, [tuple(row) for row in ask("costs", costs, **between).result_rows]


def of_directory(directory: Path, seconds: int) -> list[str]:
    """Return those of the last seconds of what runs in the data directory of a demo or an `up`."""
    return of_store(load_running(None, directory).settings.clickhouse, *latest(seconds, time.time()))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--data-dir", type=Path)
    parser.add_argument("--url", default="http://127.0.0.1:8123")
    parser.add_argument("--database", default="kvlens")
    parser.add_argument("--seconds", type=int, default=300)
    asked = parser.parse_args()
    store = ClickHouse(url=asked.url, database=asked.database)
    if asked.data_dir is not None:
        store = load_running(None, asked.data_dir).settings.clickhouse
    found = of_store(store, *latest(asked.seconds, time.time()))
    raise SystemExit("\n".join(found))


if __name__ == "__main__":
    main()
