"""Keeps the minute and hour tables equal to a recount of the ten-second ones.

Writers of ten-second rows announce their minutes, here and in the table `rollups_due`; a run recomputes these
minutes, then their hours. A run is a pure function of the finer table, so it may be repeated, and two workers
may recompute the same minute: the version is the server's time before the statement read anything, so
whichever row wins has seen all rows that were written before.
"""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from datetime import datetime, timedelta, timezone
from typing import Any, Protocol, TypeGuard, get_args

import structlog
from prometheus_client import Counter, Histogram

from connectors.process.limited_log import LogLimiter
from pipeline.clickhouse.client import Connection, store_unavailable
from pipeline.clickhouse.due_minutes import DueMinutes, Minute
from pipeline.clickhouse.sql_files import rollup
from pipeline.errors import StoreUnavailable
from schemas.fleet_rows import CapacityCurveRow, FillsRow, HotPrefixRow, RedundancyRow
from schemas.rows import FlowRow, OccupancyRow, Row, StreamHealthRow
from schemas.settings import ClickHouse

Windowed = (
    OccupancyRow | FlowRow | StreamHealthRow | FillsRow | RedundancyRow | CapacityCurveRow | HotPrefixRow
)
"""Rows of tables that have rollups."""

FAMILIES: dict[type[Row], str] = {kind: kind.TABLE.removesuffix("_10s") for kind in get_args(Windowed)}
"""Row type of a ten-second table -> what the names of its rollups begin with."""

_MINUTE = timedelta(minutes=1)
_HOUR = timedelta(hours=1)
_DAY = timedelta(days=1)
_GIVEN_UP_SECONDS = 600
"""A worker whose note is older than this no longer writes rows of the minute: it would have renewed it."""
_FAR_BEHIND_PERIODS = 4
"""A worker that is far behind runs only every so many periods: it passes many minutes in each, and nobody
waits for the first of them."""
_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
_OLDEST = timedelta(days=6)
"""Ten-second rows older than a week expire; a minute is not recomputed from what is left of it."""

_COLUMNS = ("worker", "family", "minute", "noted", "noted_at", "done")

_log = structlog.get_logger(__name__)


def minutes_of(rows: Iterable[Row]) -> set[Minute]:
    """Return the minutes in which rows of rolled-up tables lie."""
    found: set[tuple[type[Row], datetime]] = {(type(row), row.window) for row in rows if _is_windowed(row)}
    return {Minute(FAMILIES[kind], _floor(window, _MINUTE)) for kind, window in found}


def _is_windowed(row: Row) -> TypeGuard[Windowed]:
    return type(row) in FAMILIES


def slices(periods: Iterable[datetime], span: timedelta) -> list[list[datetime]]:
    """Group periods so that those of one statement lie in one `span`, in order."""
    grouped: dict[datetime, list[datetime]] = {}
    for period in sorted(periods):
        grouped.setdefault(_floor(period, span), []).append(period)
    return list(grouped.values())


def _floor(moment: datetime, span: timedelta) -> datetime:
    seconds = int(span.total_seconds())
    return datetime.fromtimestamp(int(moment.timestamp()) // seconds * seconds, timezone.utc)


class RollupMetrics(Protocol):
    """The metrics of the rollups, among those of a worker."""

    store_failures: Counter
    rollup_periods: Counter
    rollup_seconds: Histogram


class Rollups:
    """Recomputes the minutes that are due; belongs to one event loop, statements run in a thread."""

    def __init__(
        self, store: ClickHouse, metrics: RollupMetrics, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._store = store
        self._metrics = metrics
        self._clock = clock
        self._worker = uuid.uuid4().hex
        self._minutes = DueMinutes()
        self._connection = Connection(store)
        self._others_may_have_left = True
        self._limiter = LogLimiter()

    async def announce(self, rows: Iterable[Row]) -> set[Minute]:
        """Note the minutes of rows before they are written; return them, for `written`.

        Raises StoreUnavailable.
        """
        minutes = _recent(minutes_of(rows))
        # Before anything is awaited: a concurrent run must not end the notes that exist already.
        self._minutes.begin_write(minutes)
        try:
            await self.renew(minutes)
        except BaseException:
            self._minutes.cancel_write(minutes)
            raise
        return minutes

    async def renew(self, minutes: Iterable[Minute]) -> None:
        """Renew the notes that have grown old, before another attempt to write rows of these minutes.

        Raises StoreUnavailable.
        """
        began = self._clock()
        if notes := self._minutes.to_note(minutes, began):
            await asyncio.to_thread(self._note, notes)
            self._minutes.noted(notes, began)

    def written(self, minutes: Collection[Minute]) -> None:
        """Make the announced minutes due: their rows are written."""
        self._minutes.end_write(minutes)

    def others_left(self) -> None:
        """Let the next run look for minutes that other workers noted and did not finish."""
        self._others_may_have_left = True

    async def run(self, every_seconds: float, *, far_behind: Callable[[], bool]) -> None:
        """Recompute what is due every `every_seconds`, less often while `far_behind`; failures stay due."""
        await asyncio.sleep(min(every_seconds, 1.0))
        periods = 0
        while True:
            periods += 1
            if periods >= (_FAR_BEHIND_PERIODS if far_behind() else 1):
                periods = 0
                await self._run()
            await asyncio.sleep(every_seconds)

    async def _run(self) -> None:
        try:
            await self.run_once()
        except StoreUnavailable as error:
            self._metrics.store_failures.labels("rollup").inc()
            if (suppressed := self._limiter.admit("waiting")) is not None:
                _log.warning("rollups wait for ClickHouse", reason=str(error), **suppressed)

    async def run_once(self) -> None:
        """Recompute what is due now; what is not done stays due.

        This worker's own minutes come first, then those that others left. If a family fails, the others are
        still recomputed; the first StoreUnavailable is raised at the end.
        """
        failed = await self._recompute_due()
        if self._others_may_have_left:
            self._others_may_have_left = False
            try:
                left, given_up = await asyncio.to_thread(self._left_by_others)
                self._minutes.add(left)
                failed |= await self._recompute_due()
                gone = {of: note for of, note in given_up.items() if of[1] not in failed}
                await asyncio.to_thread(self._done, gone)
                self._others_may_have_left |= gone != given_up
            except BaseException:
                self._others_may_have_left = True
                raise
        if failed:
            raise next(iter(failed.values()))

    async def finish(self, seconds: float) -> None:
        """Make a last run of at most `seconds`; log it if something is left."""
        try:
            await asyncio.wait_for(self.run_once(), seconds)
        except (StoreUnavailable, asyncio.TimeoutError) as error:
            reason = str(error) or f"not done within {seconds:.0f} s"
            _log.warning("minutes and hours are left to another worker", reason=reason)

    async def _recompute_due(self) -> dict[str, StoreUnavailable]:
        """Recompute family by family; return {family: error} of those that failed."""
        taken, over = self._minutes.pop_due()
        families: dict[str, set[Minute]] = {}
        for minute in taken:
            families.setdefault(minute.family, set()).add(minute)
        failed: dict[str, StoreUnavailable] = {}
        began = self._clock()
        try:
            for family in sorted(families):
                try:
                    await self._recompute_family(family, families[family])
                except StoreUnavailable as error:
                    failed[family] = error
            over = {minute: note for minute, note in over.items() if minute.family not in failed}
            await asyncio.to_thread(
                self._done, {(self._worker, *minute): note for minute, note in over.items()}
            )
            self._minutes.done(over)
        except BaseException:
            self._minutes.add(taken)
            raise
        for family in failed:
            self._minutes.add(families[family])
        if not failed:
            self._metrics.rollup_seconds.observe(self._clock() - began)
        return failed

    async def _recompute_family(self, family: str, taken: Iterable[Minute]) -> None:
        minutes = {minute.start for minute in _recent(taken)}
        for some in slices(minutes, _HOUR):
            await asyncio.to_thread(self._recompute, f"{family}_1m", some, _MINUTE)
        for some in slices({_floor(minute, _HOUR) for minute in minutes}, _DAY):
            await asyncio.to_thread(self._recompute, f"{family}_1h", some, _HOUR)

    def _recompute(self, table: str, periods: Sequence[datetime], length: timedelta) -> None:
        statement = rollup(table).replace("{database}", self._store.database)
        with store_unavailable(self._store):
            client = self._connection.client()
            version = client.query("SELECT toUnixTimestamp64Micro(now64(6))").result_rows[0][0]
            client.command(
                statement,
                parameters={
                    "periods": list(periods),
                    "from": periods[0],
                    "to": periods[-1] + length,
                    "version": version,
                },
            )
        self._metrics.rollup_periods.labels(table).inc(len(periods))

    def _note(self, notes: Mapping[Minute, int]) -> None:
        # Other workers also compare it with the server's time, as workers' clocks may differ.
        now = self._server_time()
        self._insert([(self._worker, *minute, note, now, 0) for minute, note in notes.items()])

    def _server_time(self) -> datetime:
        with store_unavailable(self._store):
            return _utc(self._connection.client().query("SELECT now('UTC')").result_rows[0][0])

    def _done(self, notes: Mapping[tuple[str, str, datetime], int]) -> None:
        """Record in the store that notes, given by worker, family and minute, are done."""
        self._insert([(*of, 0, _EPOCH, note) for of, note in notes.items()])

    def _insert(self, rows: Sequence[Sequence[Any]]) -> None:
        if rows:
            with store_unavailable(self._store):
                self._connection.client().insert(
                    "rollups_due", rows, column_names=_COLUMNS, database=self._store.database
                )

    def _left_by_others(self) -> tuple[set[Minute], dict[tuple[str, str, datetime], int]]:
        """Return the minutes that other workers noted and did not recompute, and the notes to give up.

        The latter are old notes of workers that no longer write, by worker, family and minute.
        """
        left: set[Minute] = set()
        given_up = {}
        query = (
            "SELECT worker, family, minute, max(noted) AS note, "
            f"max(noted_at) < now() - {_GIVEN_UP_SECONDS} "
            f"FROM {self._store.database}.rollups_due WHERE worker != {{worker:String}} "
            "GROUP BY worker, family, minute HAVING note > max(done)"
        )
        with store_unavailable(self._store):
            result = self._connection.client().query(query, parameters={"worker": self._worker})
        for worker, family, minute, note, is_old in result.result_rows:
            minute = _utc(minute)
            left.add(Minute(family, minute))
            if is_old:
                given_up[worker, family, minute] = note
        return left, given_up


def _recent(minutes: Iterable[Minute]) -> set[Minute]:
    """Return the minutes whose ten-second rows are all still there."""
    oldest = datetime.now(timezone.utc) - _OLDEST
    return {minute for minute in minutes if minute.start >= oldest}


def _utc(moment: datetime) -> datetime:
    return moment.replace(tzinfo=timezone.utc)
