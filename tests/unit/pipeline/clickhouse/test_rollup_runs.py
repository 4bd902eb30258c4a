"""In what order minutes are recomputed, and what a last run does that has too little time."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from datetime import datetime, timedelta, timezone
from typing import Any

import pytest
import structlog
from structlog.testing import CapturingLogger

from pipeline.clickhouse import rollups as rollups_module
from pipeline.clickhouse.due_minutes import Minute
from pipeline.clickhouse.rollups import FAMILIES, Rollups
from pipeline.worker.telemetry import WorkerMetrics
from schemas.rows import CapacityCurveRow
from schemas.settings import ClickHouse

NOW = datetime.now(timezone.utc).replace(second=0, microsecond=0)
LEFT = {Minute("flow", NOW - timedelta(minutes=number)) for number in range(3)}
NOTED = NOW - timedelta(minutes=7)


class WatchedRollups(Rollups):
    """Keeps what it recomputes in a list; the statements wait for `store`."""

    def __init__(self) -> None:
        super().__init__(ClickHouse(), WorkerMetrics())
        self.done: list[tuple[str, tuple[datetime, ...]]] = []
        self.inserted: list[Sequence[Any]] = []
        self.store = threading.Event()
        self.store.set()

    def note_minute(self) -> None:
        self._minutes.add([Minute(FAMILIES[CapacityCurveRow], NOTED)])

    def _recompute(self, table: str, periods: Sequence[datetime], length: timedelta) -> None:
        self.store.wait(10.0)
        self.done.append((table, tuple(periods)))

    def _insert(self, rows: Sequence[Sequence[Any]]) -> None:
        self.inserted += rows

    def _left_by_others(self) -> tuple[set[Minute], dict[tuple[str, str, datetime], int]]:
        return LEFT, {("gone", "flow", NOW): 7}


async def test_own_minutes_come_before_what_others_left() -> None:
    rollups = WatchedRollups()
    rollups.note_minute()
    await rollups.run_once()
    assert rollups.done[0] == ("capacity_curve_1m", (NOTED,))
    assert {table for table, _ in rollups.done[2:]} == {"flow_1m", "flow_1h"}
    assert {minute for table, minutes in rollups.done[2:] for minute in minutes if table == "flow_1m"} == {
        minute.start for minute in LEFT
    }
    [(*of, note, noted_at, done)] = rollups.inserted
    assert (of, note, noted_at.year, done) == (["gone", "flow", NOW], 0, 1970, 7)
    rollups.done.clear()
    await rollups.run_once()
    assert rollups.done == []
    rollups.others_left()
    await rollups.run_once()
    assert {table for table, _ in rollups.done} == {"flow_1m", "flow_1h"}


async def test_last_run_says_what_it_leaves(monkeypatch: pytest.MonkeyPatch) -> None:
    said = CapturingLogger()
    monkeypatch.setattr(rollups_module, "_log", structlog.wrap_logger(said, processors=[]))
    rollups = WatchedRollups()
    rollups.note_minute()
    rollups.store.clear()
    await rollups.finish(0.05)
    rollups.store.set()
    [call] = said.calls
    assert call.kwargs["event"] == "minutes and hours are left to another worker"
    assert call.kwargs["reason"] == "not done within 0 s"
    await rollups.run_once()
    assert ("capacity_curve_1m", (NOTED,)) in rollups.done
