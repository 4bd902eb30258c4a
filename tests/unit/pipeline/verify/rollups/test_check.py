"""Minutes and hours beside a worker that writes: what is wrong is found, what is late is not called wrong."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from datetime import datetime, timedelta, timezone
from typing import Any

import pytest

from pipeline.verify.findings import Findings
from pipeline.verify.rollups.check import (
    CHANGING,
    DUE,
    FAMILIES,
    NOT_OVER,
    PATIENCE_WITH_OPEN,
    PERIODS,
    check_rollups,
)
from pipeline.verify.times import EPOCH, start_of_period
from schemas.rows import FlowRow, OccupancyRow
from tests.support.rollups.rows import FAMILIES as SUMS
from tests.support.rollups.rows import as_periods, rolled_up

BEGAN = datetime(2026, 3, 4, 11, 58, tzinfo=timezone.utc)
NOON = BEGAN + timedelta(minutes=2)
AT = timedelta(seconds=1)
NAMES = ("flow", "occupancy")
PATIENCE = 35.0


def row(kind: type[FlowRow] | type[OccupancyRow], window: datetime, blocks: int) -> dict[str, Any]:
    columns = {
        **dict.fromkeys(kind.__struct_fields__, 0),
        "window": window,
        "model": "m",
        "replica": "r",
        "medium": "gpu",
        "store_only": False,
        "at_least": False,
        "lifetime_hist": [],
        "trust": "complete",
        "trust_since": EPOCH,
        "stored_blocks": blocks,
        "blocks": blocks,
    }
    return {column: columns[column] for column in kind.__struct_fields__}


class Installation:
    """Tables, and a clock that somebody's work goes on with."""

    def __init__(self, now: datetime) -> None:
        self.tables: dict[str, list[dict[str, Any]]] = {
            f"{name}_{per}": [] for name in FAMILIES for per in ("10s", *PERIODS)
        }
        self.now = now
        self.due: set[tuple[str, datetime]] = set()
        self.work: list[Callable[[], None]] = []
        """What is done every second."""

    def write(self, window: datetime, blocks: int = 1) -> None:
        """Write ten-second rows."""
        for name, kind in (("flow", FlowRow), ("occupancy", OccupancyRow)):
            kept = [one for one in self.tables[f"{name}_10s"] if one["window"] != window]
            self.tables[f"{name}_10s"] = [*kept, row(kind, window, blocks)]

    def roll_up(self) -> None:
        """Write all minutes and hours."""
        for name in NAMES:
            for per, length in PERIODS.items():
                periods = rolled_up(SUMS[name], length, self.tables[f"{name}_10s"])
                self.tables[f"{name}_{per}"] = [
                    dict(zip(FAMILIES[name], key, strict=True)) | columns | {"version": 1}
                    for key, columns in periods.items()
                ]

    def plant(self, table: str, window: datetime, column: str = "windows") -> None:
        """Make the figure of a period wrong."""
        [one] = [one for one in self.tables[table] if one["window"] == window]
        one[column] += 1000

    def rows_by_day(self, name: str, per: str, begin: datetime) -> dict[datetime, int]:
        days: Counter[datetime] = Counter()
        for table, counts in ((f"{name}_10s", 0), (f"{name}_{per}", 1)):
            for one in self.tables[table]:
                if one["window"] >= begin:
                    days[start_of_period(one["window"], timedelta(days=1))] += counts
        return days

    def differing(self, name: str, per: str, begin: datetime, end: datetime) -> Iterable[dict[str, Any]]:
        has, fine = (
            [one for one in self.tables[table] if begin <= one["window"] < end]
            for table in (f"{name}_{per}", f"{name}_10s")
        )
        sides = as_periods(SUMS[name], has), rolled_up(SUMS[name], PERIODS[per], fine)
        for computed, periods in enumerate(sides):
            for key, columns in periods.items():
                if sides[1 - computed].get(key) != columns:
                    yield {**dict(zip(FAMILIES[name], key, strict=True)), **columns, "computed": computed}

    def minutes_due(self) -> Iterable[tuple[str, datetime]]:
        return self.due

    def sleep(self, seconds: float) -> None:
        before = self.now
        self.now += timedelta(seconds=seconds)
        if before.second != self.now.second:
            for work in self.work:
                work()

    def checked(self, patience: float = PATIENCE) -> Findings:
        findings = Findings()
        check_rollups(
            self,
            findings,
            oldest=NOON - timedelta(days=5),
            patience=patience,
            now=lambda: self.now,
            clock=lambda: (self.now - EPOCH).total_seconds(),
            sleep=self.sleep,
        )
        return findings


@pytest.fixture
def finished() -> Installation:
    """A minute that is over in an hour that is over."""
    installation = Installation(NOON + timedelta(minutes=5))
    for number in range(6):
        installation.write(BEGAN + timedelta(seconds=10 * number))
    installation.roll_up()
    return installation


def test_rollups_that_follow_from_their_rows_are_equal_at_once(finished: Installation) -> None:
    before = finished.now
    findings = finished.checked()
    assert findings.equal
    assert findings.compared == {f"{name}_{per}": int(name in NAMES) for name in FAMILIES for per in PERIODS}
    assert finished.now == before


@pytest.mark.parametrize("patience", [0.0, PATIENCE])
@pytest.mark.parametrize("per", ["1m", "1h"])
def test_a_wrong_figure_of_a_period_that_is_over_differs(
    finished: Installation, per: str, patience: float
) -> None:
    start = BEGAN if per == "1m" else BEGAN.replace(minute=0)
    finished.plant(f"occupancy_{per}", start)
    findings = finished.checked(patience)
    assert findings.verdict == "different"
    [difference] = findings.kept
    assert (difference.table, difference.kind) == (f"occupancy_{per}", "differs")
    assert (difference.expected, difference.found) == ({"windows": 6}, {"windows": 1006})


def test_missing_and_additional_periods_that_are_over_differ(finished: Installation) -> None:
    finished.tables["flow_1m"].clear()
    finished.tables["occupancy_10s"].clear()
    findings = finished.checked()
    assert {(one.table, one.kind) for one in findings.kept} == {
        ("flow_1m", "missing"),
        ("occupancy_1m", "unexpected"),
        ("occupancy_1h", "unexpected"),
    }


@pytest.fixture
def working() -> Installation:
    """A minute has just ended, and the next one is written all the time, faster than it is rolled up."""
    installation = Installation(NOON + AT)
    for number in range(6):
        installation.write(NOON - timedelta(seconds=10 * (number + 1)))
    counting: Iterator[int] = iter(range(1, 10_000))

    def write() -> None:
        window = installation.now.replace(second=installation.now.second // 10 * 10, microsecond=0)
        installation.write(window, next(counting))

    write()
    installation.work.append(write)
    return installation


def test_what_never_settles_uses_up_no_other_tables_patience(working: Installation) -> None:
    """Minutes and hours that are over are rolled up only after a while; the open ones never."""

    def roll_up() -> None:
        if working.now >= NOON + timedelta(seconds=20):
            kept = {name: working.tables[name] for name in working.tables if name.endswith("10s")}
            for name, rows in kept.items():
                working.tables[name] = [one for one in rows if one["window"] < NOON]
            working.roll_up()
            working.tables |= kept

    working.work.append(roll_up)
    findings = working.checked()
    assert not findings.kept
    assert set(findings.late) == {(f"{name}_{per}", NOT_OVER) for name in NAMES for per in PERIODS}
    # The minute and the hour before.
    assert all(findings.compared[f"{name}_{per}"] == 1 for name in NAMES for per in PERIODS)
    assert working.now < NOON + timedelta(seconds=PATIENCE_WITH_OPEN * PATIENCE + 5)


def test_a_worker_that_keeps_up_is_equal_even_in_periods_that_are_not_over(working: Installation) -> None:
    """It rolls up every 15 seconds, and the next ten-second rows come before anybody looks."""

    def roll_up() -> None:
        if working.now.second % 15 == 0:
            working.roll_up()

    working.work.insert(0, roll_up)
    findings = working.checked()
    assert findings.equal, (findings.kept, findings.late)


def test_a_wrong_figure_of_the_newest_minute_that_is_over_differs(working: Installation) -> None:
    working.roll_up()
    working.plant("flow_1m", NOON - timedelta(minutes=1), "stored_blocks")
    findings = working.checked()
    [difference] = findings.kept
    assert (difference.table, difference.key["window"]) == ("flow_1m", NOON - timedelta(minutes=1))
    assert findings.verdict == "different"


def test_a_period_that_is_not_over_is_late_though_its_rows_stay_as_they_are(finished: Installation) -> None:
    finished.now = NOON - timedelta(seconds=30)
    finished.plant("flow_1h", BEGAN.replace(minute=0))
    findings = finished.checked()
    assert not findings.kept
    assert findings.late == {("flow_1h", NOT_OVER): 1}
    assert findings.verdict == "late"
    assert findings.compared["flow_1h"] == 0


def test_a_period_whose_rows_change_meanwhile_is_late(finished: Installation) -> None:
    """Replayed batches may count long after a minute."""
    changes = iter(range(2, 10_000))
    finished.work.append(lambda: finished.write(BEGAN, next(changes)))
    finished.plant("flow_1m", BEGAN)
    findings = finished.checked()
    assert not findings.kept
    assert findings.late["flow_1m", CHANGING] == 1
    assert {reason for _, reason in findings.late} == {CHANGING}


def test_what_a_killed_worker_noted_is_late_until_another_recomputes_it(finished: Installation) -> None:
    """It had written ten-second rows of one family, and nobody has taken over."""
    finished.write(BEGAN, blocks=9)
    finished.due = {("flow", BEGAN)}
    findings = finished.checked()
    assert findings.late == {("flow_1m", DUE): 1, ("flow_1h", DUE): 1}
    assert {one.table for one in findings.kept} == {"occupancy_1m", "occupancy_1h"}
    finished.roll_up()
    findings = finished.checked()
    assert findings.equal, (findings.kept, findings.late)


def test_what_is_recomputed_while_the_notes_are_read_is_equal(finished: Installation) -> None:
    finished.write(BEGAN, blocks=9)

    def recomputed() -> Iterable[tuple[str, datetime]]:
        finished.roll_up()
        return ()

    finished.minutes_due = recomputed  # type: ignore[method-assign]
    findings = finished.checked(patience=0.0)
    assert findings.equal, (findings.kept, findings.late)
