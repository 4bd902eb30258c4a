"""Keeps the minute and hour tables equal to a recount of the ten-second ones.

Whoever writes ten-second rows says so; a run recomputes exactly their minutes, then their hours. A run is a
pure function of the finer table, so it may be repeated, and two workers may recompute the same minute: the
version is the server's time before the statement read anything, so whichever row wins has seen all rows noted
before.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta, timezone
from typing import Protocol, get_args

import structlog
from clickhouse_connect.driver.client import Client
from prometheus_client import Counter, Histogram

from connectors.process.limited_log import LogLimiter
from pipeline.clickhouse.client import connect, store_unavailable
from pipeline.clickhouse.migrations import DIRECTORY, statements
from pipeline.errors import StoreUnavailable
from schemas.rows import (
    CapacityCurveRow,
    FillsRow,
    FlowRow,
    HotPrefixRow,
    OccupancyRow,
    RedundancyRow,
    Row,
    StreamHealthRow,
)
from schemas.settings import ClickHouse

Windowed = (
    OccupancyRow | FlowRow | StreamHealthRow | FillsRow | RedundancyRow | CapacityCurveRow | HotPrefixRow
)
"""Rows of tables that have rollups."""

FAMILIES: dict[type[Row], str] = {kind: kind.TABLE.removesuffix("_10s") for kind in get_args(Windowed)}
"""Row type of a ten-second table to the name its rollups begin with."""

_MINUTE = timedelta(minutes=1)
_HOUR = timedelta(hours=1)
_DAY = timedelta(days=1)
_HORIZON = timedelta(hours=2)
"""Recomputed after a start."""
_OLDEST = timedelta(days=6)
"""Ten-second rows older than a week expire; a minute is not recomputed from what is left of it."""

_log = structlog.get_logger(__name__)

Minutes = dict[str, set[datetime]]
"""Family to the starts of minutes."""


def minutes_of(rows: Iterable[Row]) -> Minutes:
    """Return the minutes in which rows of rolled-up tables lie."""
    found: Minutes = {}
    for row in rows:
        family = FAMILIES.get(type(row))
        if family is not None and isinstance(row, Windowed):
            found.setdefault(family, set()).add(row.window)
    return {family: {_floor(window, _MINUTE) for window in windows} for family, windows in found.items()}


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

    def __init__(self, store: ClickHouse, metrics: RollupMetrics) -> None:
        self._store = store
        self._metrics = metrics
        self._due: Minutes = {}
        self._client: Client | None = None
        self._caught_up = False
        self._limiter = LogLimiter()

    def note(self, rows: Iterable[Row]) -> None:
        """Take up the minutes of rows that were written."""
        for family, minutes in minutes_of(rows).items():
            self._due.setdefault(family, set()).update(minutes)

    async def run(self, every_seconds: float) -> None:
        """Recompute what is due, again and again; what failed stays due."""
        await asyncio.sleep(min(every_seconds, 1.0))
        while True:
            try:
                await self.run_once()
            except StoreUnavailable as error:
                self._metrics.store_failures.labels("rollup").inc()
                if (suppressed := self._limiter.admit("waiting")) is not None:
                    _log.warning("rollups wait for ClickHouse", reason=str(error), **suppressed)
            await asyncio.sleep(every_seconds)

    async def run_once(self) -> None:
        """Recompute what is due now. Raises StoreUnavailable; what is not done stays due.

        What was noted comes first. The first run then adds the recent past: what was due in a worker that was
        killed is not known.
        """
        await self._recompute_due()
        if not self._caught_up:
            recent = await asyncio.to_thread(self._recent)
            for family in FAMILIES.values():
                self._due.setdefault(family, set()).update(recent)
            self._caught_up = True
            await self._recompute_due()

    async def finish(self, seconds: float) -> None:
        """Recompute what is due within so much time, as the last run; say so if some of it is left."""
        try:
            await asyncio.wait_for(self.run_once(), seconds)
        except (StoreUnavailable, asyncio.TimeoutError) as error:
            reason = str(error) or f"not done within {seconds:.0f} s"
            _log.warning("minutes and hours are left to the next worker that starts", reason=reason)

    async def _recompute_due(self) -> None:
        taken, self._due = self._due, {}
        began = time.monotonic()
        try:
            for family, minutes in taken.items():
                oldest = datetime.now(timezone.utc) - _OLDEST
                for some in slices((minute for minute in minutes if minute >= oldest), _HOUR):
                    await asyncio.to_thread(self._recompute, f"{family}_1m", some, _MINUTE)
                hours = {_floor(minute, _HOUR) for minute in minutes if minute >= oldest}
                for some in slices(hours, _DAY):
                    await asyncio.to_thread(self._recompute, f"{family}_1h", some, _HOUR)
        except BaseException:
            for family, minutes in taken.items():
                self._due.setdefault(family, set()).update(minutes)
            raise
        self._metrics.rollup_seconds.observe(time.monotonic() - began)

    def _recompute(self, table: str, periods: Sequence[datetime], length: timedelta) -> None:
        [statement] = statements((DIRECTORY / "rollups" / f"{table}.sql").read_text(), self._store.database)
        with store_unavailable(self._store):
            client = self._connected()
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

    def _recent(self) -> set[datetime]:
        """Return the minutes up to now, and up to the newest row, which is older during a backlog."""
        ends = [datetime.now(timezone.utc)]
        with store_unavailable(self._store):
            client = self._connected()
            for family in FAMILIES.values():
                query = f"SELECT max(window) FROM {self._store.database}.{family}_10s"
                newest = client.query(query).result_rows[0][0]
                ends.append(newest.replace(tzinfo=timezone.utc))
        return {
            _floor(end, _MINUTE) - number * _MINUTE
            for end in ends
            if end.timestamp() > _DAY.total_seconds()
            for number in range(_HORIZON // _MINUTE)
        }

    def _connected(self) -> Client:
        if self._client is None:
            self._client = connect(self._store)
        return self._client
