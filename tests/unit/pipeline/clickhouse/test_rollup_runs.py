"""What runs recompute, in what order, and which notes they leave in the store."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta, timezone
from typing import Any

import pytest
import structlog
from structlog.testing import CapturingLogger

from pipeline.clickhouse import rollups as rollups_module
from pipeline.clickhouse.due_minutes import Minute
from pipeline.clickhouse.rollups import FAMILIES, Rollups
from pipeline.errors import StoreUnavailable
from pipeline.worker.telemetry import WorkerMetrics
from schemas.fleet_rows import CapacityCurveRow
from schemas.rows import FlowRow
from schemas.settings import ClickHouse

NOW = datetime.now(timezone.utc).replace(second=0, microsecond=0)
LEFT = {Minute("flow", NOW - timedelta(minutes=number)) for number in range(3)}
NOTED = NOW - timedelta(minutes=7)


def row(window: datetime) -> FlowRow:
    return FlowRow(window, "m", "r", 0, "gpu", 0, *[0] * 10, [], "complete", NOW, 0)


def lost() -> None:
    raise StoreUnavailable("http://store", "the answer was lost")


class WatchedRollups(Rollups):
    """Keeps what it recomputes in a list; the statements wait for `store`."""

    def __init__(self) -> None:
        self.at = 100.0
        self.metrics = WorkerMetrics()
        super().__init__(ClickHouse(), self.metrics, clock=lambda: self.at)
        self.done: list[tuple[str, tuple[datetime, ...]]] = []
        self.inserted: list[Sequence[Any]] = []
        self.left = LEFT
        self.given_up = {("gone", "flow", NOW): 7}
        self.fails: Callable[[str], bool] = lambda table: False
        self.store = threading.Event()
        self.store.set()

    def note_minute(self) -> None:
        self._minutes.add([Minute(FAMILIES[CapacityCurveRow], NOTED)])

    def note(self, minutes: set[Minute]) -> None:
        """As if this worker had written rows of them."""
        self._minutes.begin_write(minutes)
        self._minutes.noted(self._minutes.to_note(minutes, 0.0), 0.0)
        self._minutes.end_write(minutes)

    def _recompute(self, table: str, periods: Sequence[datetime], length: timedelta) -> None:
        self.store.wait(60.0)
        if self.fails(table):
            raise StoreUnavailable("http://store", f"{table}: memory limit exceeded")
        self.done.append((table, tuple(periods)))

    def _insert(self, rows: Sequence[Sequence[Any]]) -> None:
        self.inserted += rows

    def _left_by_others(self) -> tuple[set[Minute], dict[tuple[str, str, datetime], int]]:
        return self.left, self.given_up


async def test_a_run_takes_as_long_as_its_clock_says() -> None:
    rollups = WatchedRollups()
    rollups.left, rollups.given_up = set(), {}
    rollups.note_minute()

    def takes_seven_seconds(_table: str) -> bool:
        rollups.at += 7.0
        return False

    rollups.fails = takes_seven_seconds
    await rollups.run_once()
    (told,) = rollups.metrics.rollup_seconds.collect()
    (seconds,) = [each.value for each in told.samples if each.name.endswith("_sum")]
    assert seconds == 7.0 * len(rollups.done) > 0


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


class NotingRollups(Rollups):
    """Keeps the store's notes: what is noted and what is done of a minute."""

    def __init__(self) -> None:
        super().__init__(ClickHouse(), WorkerMetrics())
        self.notes: dict[datetime, tuple[int, int]] = {}
        self.insert: Callable[[], object] = lambda: None
        self.answer: Callable[[], object] = lambda: None

    def due(self) -> list[datetime]:
        return [minute for minute, (noted, done) in self.notes.items() if noted > done]

    def _server_time(self) -> datetime:
        return NOW

    def _recompute(self, table: str, periods: Sequence[datetime], length: timedelta) -> None:
        pass

    def _insert(self, rows: Sequence[Sequence[Any]]) -> None:
        self.insert()
        for _, _, minute, noted, _, done in rows:
            before = self.notes.get(minute, (0, 0))
            self.notes[minute] = max(noted, before[0]), max(done, before[1])
        self.answer()

    def _left_by_others(self) -> tuple[set[Minute], dict[tuple[str, str, datetime], int]]:
        return set(), {}


async def test_a_note_stands_while_another_one_is_made_for_the_same_rows() -> None:
    rollups, noting, store = NotingRollups(), threading.Event(), threading.Event()
    last, this = row(NOW - timedelta(minutes=1)), row(NOW)
    rollups.written(await rollups.announce([last]))
    rollups.insert = lambda: (noting.set(), store.wait(60.0))
    announced = asyncio.create_task(rollups.announce([last, this]))
    await asyncio.to_thread(noting.wait, 60.0)
    rollups.insert = lambda: None
    await rollups.run_once()
    store.set()
    minutes = await announced
    # Its rows are about to be written.
    assert sorted(rollups.due()) == [last.window, this.window]
    rollups.written(minutes)
    await rollups.run_once()
    assert not rollups.due()


async def test_a_minute_is_noted_anew_when_it_may_be_done_already() -> None:
    rollups = NotingRollups()
    rollups.written(await rollups.announce([row(NOW)]))
    rollups.answer = lost
    with pytest.raises(StoreUnavailable):
        await rollups.run_once()
    assert not rollups.due()
    rollups.answer = lambda: None
    minutes = await rollups.announce([row(NOW)])
    assert rollups.due() == [NOW]
    rollups.written(minutes)
    await rollups.run_once()
    assert not rollups.due()


async def test_a_note_that_was_not_made_keeps_no_other_from_its_end() -> None:
    rollups = NotingRollups()
    last, this = row(NOW - timedelta(minutes=1)), row(NOW)
    rollups.written(await rollups.announce([last]))
    rollups.insert = lost
    with pytest.raises(StoreUnavailable):
        await rollups.announce([last, this])
    rollups.insert = lambda: None
    await rollups.run_once()
    assert not rollups.due()


async def test_a_worker_that_is_far_behind_makes_every_fourth_run(monkeypatch: pytest.MonkeyPatch) -> None:
    rollups, behind = WatchedRollups(), [True] * 8 + [False] * 2 + [True]
    passed: list[bool] = []
    runs: list[int] = []

    def far_behind() -> bool:
        if len(passed) == len(behind):
            raise asyncio.CancelledError
        passed.append(behind[len(passed)])
        return passed[-1]

    async def run_once() -> None:
        runs.append(len(passed))

    monkeypatch.setattr(rollups, "run_once", run_once)
    with pytest.raises(asyncio.CancelledError):
        await rollups.run(0.0, far_behind=far_behind)
    assert runs == [4, 8, 9, 10]


@pytest.mark.parametrize("own", [True, False])
async def test_a_family_that_fails_keeps_no_other_from_being_done(own: bool) -> None:
    rollups, failing = WatchedRollups(), {"flow"}
    # Of the families, flow is neither the first nor the last.
    families = ("capacity_curve", "flow", "occupancy")
    due = {Minute(family, NOW) for family in families}
    if own:
        rollups.left, rollups.given_up = set(), {}
        rollups.note(due)
    else:
        rollups.left, rollups.given_up = due, {("gone", *minute): 7 for minute in due}
    rollups.fails = lambda table: table.removesuffix("_1m") in failing
    for _ in range(2):
        with pytest.raises(StoreUnavailable, match="flow_1m"):
            await rollups.run_once()
        assert {table for table, _ in rollups.done} == {
            f"{family}_{per}" for family in families if family != "flow" for per in ("1m", "1h")
        }
        assert {family for _, family, _, _, _, done in rollups.inserted if done} == {*families} - {"flow"}
    failing.clear()
    rollups.done.clear()
    rollups.inserted.clear()
    await rollups.run_once()
    assert {"flow_1m", "flow_1h"} <= {table for table, _ in rollups.done}
    assert "flow" in {family for _, family, _, _, _, done in rollups.inserted if done}
    rollups.done.clear()
    await rollups.run_once()
    assert rollups.done == []
