"""Compares minutes and hours with the ten-second rows, while a worker may still be writing both.

A worker recomputes a period up to `worker.rollup_seconds` after it wrote ten-second rows there. So the row of
a minute or hour is right if it follows from the ten-second rows as seen at any look of this comparison.
Workers note the minutes in `rollups_due` before they write ten-second rows, so late rollups are recognised.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Set
from datetime import datetime, timedelta, timezone
from typing import Any, Protocol

from pipeline.verify.findings import Findings, difference
from pipeline.verify.keys import KEYS
from pipeline.verify.times import start_of_period
from schemas.fleet_rows import CapacityCurveRow, FillsRow, RedundancyRow
from schemas.rows import FlowRow, OccupancyRow, StreamHealthRow

NOT_OVER = "the minute or hour was not over when the comparison began"
CHANGING = "its ten-second rows were written during the comparison"
DUE = "no worker has recomputed it since its ten-second rows were written"
_LOOK_AGAIN_SECONDS = 0.5
PATIENCE_WITH_OPEN = 3.0
"""Factor of the patience for periods that are not over: their ten-second rows change every second, so on a
busy machine no look may see the very ones that a worker computed from. It recomputes soon."""

_BY_ROW = (OccupancyRow, FlowRow, StreamHealthRow, FillsRow, RedundancyRow, CapacityCurveRow)
FAMILIES: dict[str, tuple[str, ...]] = {
    **{
        kind.TABLE.removesuffix("_10s"): tuple(column for column in KEYS[kind] if column != "shard")
        for kind in _BY_ROW
    },
    "hot_prefixes": ("window", "hash_domain", "model", "group_idx"),
}
"""By the prefix of the names of a table and its rollups: key columns of the rollups, which add up shards."""
PERIODS = {"1m": timedelta(minutes=1), "1h": timedelta(hours=1)}
_DAY = timedelta(days=1)

_Key = tuple[Any, ...]
_Columns = dict[str, Any] | None
"""Of a period's row; None if there is none."""


_Periods = dict[_Key, dict[str, Any]]


class Rollups(Protocol):
    """The tables of minutes and hours, as `statements.StoredRollups` has them."""

    def rows_by_day(self, name: str, per: str, begin: datetime) -> dict[datetime, int]:
        """Return the days from `begin` on that have any rows, and how many rollup rows each has."""

    def differing(self, name: str, per: str, begin: datetime, end: datetime) -> Iterable[dict[str, Any]]:
        """Return the rows that are only in the table, or only `computed`."""

    def minutes_due(self) -> Iterable[tuple[str, datetime]]:
        """Return the minutes that are to be recomputed, as (prefix of their tables' names, start)."""


def check_rollups(
    tables: Rollups,
    findings: Findings,
    *,
    oldest: datetime,
    patience: float,
    now: Callable[[], datetime] = lambda: datetime.now(timezone.utc),
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> None:
    """Compare all rollups of periods from `oldest` on.

    What does not follow from its ten-second rows is looked at again until `patience` seconds after the first
    look at its table, PATIENCE_WITH_OPEN times as long where no period is over. It differs then if its
    period was over, its ten-second rows stayed the same for all that time, and no worker has it noted as
    due. It is late otherwise.
    """
    rollups = [_Rollup(tables, name, per, oldest) for name in FAMILIES for per in PERIODS]
    first: dict[_Rollup, float] = {}
    for rollup in rollups:
        rollup.look_first(now)
        first[rollup] = clock()
    last = dict(first)
    while waiting := [one for one in rollups if last[one] - first[one] < one.worth_waiting(patience)]:
        sleep(_LOOK_AGAIN_SECONDS)
        for rollup in waiting:
            last[rollup] = clock()
            rollup.look_again()
    # All rows seen so far were noted before; one more look sees what was recomputed before this query.
    due = {*tables.minutes_due()} if any(rollup.pending for rollup in rollups) else set()
    for rollup in rollups:
        rollup.look_again()
        rollup.finish(findings, due)


class _Pending:
    """A period whose row does not follow from its ten-second rows so far."""

    def __init__(self, wanted: _Columns, has: _Columns) -> None:
        self.seen = [wanted]
        """What its ten-second rows gave, each time that it changed from one look to the next."""
        self.has = has

    def look(self, wanted: _Columns, has: _Columns) -> bool:
        """Note another look; return whether the row follows from this or an earlier one."""
        if wanted != self.seen[-1]:
            self.seen.append(wanted)
        self.has = has
        return has in self.seen


class _Rollup:
    """A table of minutes or hours."""

    def __init__(self, tables: Rollups, name: str, per: str, oldest: datetime) -> None:
        self.pending: dict[_Key, _Pending] = {}
        self._tables = tables
        self._name, self._per = name, per
        self._table = f"{name}_{per}"
        self._key, self._length = FAMILIES[name], PERIODS[per]
        self._from = start_of_period(oldest, self._length) + self._length
        self._began: datetime | None = None
        self._rows = 0

    def look_first(self, now: Callable[[], datetime]) -> None:
        """Look at every period."""
        self._began = now()
        days = self._tables.rows_by_day(self._name, self._per, self._from)
        wanted, has = self._read(days)
        self._rows = sum(days.values()) + len(wanted) - len(has)
        self.pending = {key: _Pending(wanted.get(key), has.get(key)) for key in {**wanted, **has}}

    def look_again(self) -> None:
        """Look at the pending periods again, and drop those that are right by now."""
        if not self.pending:
            return
        wanted, has = self._read({start_of_period(window, _DAY) for window, *_ in self.pending})
        for key, pending in list(self.pending.items()):
            if pending.look(wanted.get(key), has.get(key)):
                del self.pending[key]

    def worth_waiting(self, patience: float) -> float:
        """Return for how many seconds after the first look to keep looking."""
        if not self.pending:
            return 0.0
        return patience if any(map(self._over, self.pending)) else PATIENCE_WITH_OPEN * patience

    def _over(self, key: _Key) -> bool:
        return self._began is not None and bool(key[0] + self._length <= self._began)

    def finish(self, findings: Findings, due: Set[tuple[str, datetime]]) -> None:
        """Report which of the pending periods differ, and which are late."""
        due_here = {start_of_period(minute, self._length) for name, minute in due if name == self._name}
        late = 0
        for key, pending in self.pending.items():
            if not self._over(key):
                why = NOT_OVER
            elif len(pending.seen) > 1:
                why = CHANGING
            elif key[0] in due_here:
                why = DUE
            else:
                named = dict(zip(self._key, key, strict=True))
                findings.differ(difference(self._table, named, pending.seen[0], pending.has))
                continue
            findings.late[self._table, why] += 1
            late += pending.seen[0] is not None
        findings.compared[self._table] += self._rows - late

    def _read(self, days: Iterable[datetime]) -> tuple[_Periods, _Periods]:
        """Return what only the ten-second rows of these days give, and what only the table has."""
        has: _Periods = {}
        wanted: _Periods = {}
        for day in sorted(days):
            begin, end = max(day, self._from), day + _DAY
            for row in self._tables.differing(self._name, self._per, begin, end):
                found = wanted if row.pop("computed") else has
                found[tuple(row.pop(column) for column in self._key)] = row
        return wanted, has
