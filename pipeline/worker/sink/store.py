"""A worker's tables: rows are written until ClickHouse takes them, then their minutes are recomputed."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Coroutine, Sequence
from datetime import datetime, timezone
from typing import Any

import structlog

from connectors.process.backoff import Backoff
from connectors.process.limited_log import LogLimiter
from pipeline.clickhouse.rollups import Rollups
from pipeline.clickhouse.writer import Tables
from pipeline.errors import StoreUnavailable
from pipeline.worker.model_settings import write_models, write_prefix_names
from pipeline.worker.telemetry import WorkerMetrics
from schemas.rows import Row
from schemas.settings import Settings

_MIN_ROLLUP_SECONDS = 1.0
"""Below this, ClickHouse would do little else."""
_RETRY = Backoff(first=0.2, longest=2.0)

_log = structlog.get_logger(__name__)


class StoreRows:
    """Writes rows into the tables; several callers may do so at a time."""

    def __init__(self, tables: Tables, rollups: Rollups, metrics: WorkerMetrics) -> None:
        self._tables = tables
        self.rollups = rollups
        self._metrics = metrics
        self._limiter = LogLimiter()

    def work(self, settings: Settings, *, far_behind: Callable[[], bool]) -> list[Coroutine[Any, Any, None]]:
        """Return what is to run as long as the worker: writing settings into tables, and the rollups."""
        every = max(settings.worker.rollup_seconds, _MIN_ROLLUP_SECONDS)
        return [
            write_models(settings, self._tables, datetime.now(timezone.utc)),
            write_prefix_names(settings, self._tables),
            self.rollups.run(every, far_behind=far_behind),
        ]

    async def write(self, rows: Sequence[Row]) -> None:
        """Return when the tables have the rows; keep trying while ClickHouse fails. Raises RowsRefused."""
        attempt = 0
        minutes = None
        while True:
            try:
                if minutes is None:
                    minutes = await self.rollups.announce(rows)
                else:
                    await self.rollups.renew(minutes)
                await self._tables.insert(rows)
                break
            except StoreUnavailable as error:
                self._metrics.store_failures.labels("insert").inc()
                if (suppressed := self._limiter.admit("rows kept")) is not None:
                    message = "rows are kept until ClickHouse takes them"
                    _log.error(message, rows=len(rows), reason=str(error), **suppressed)
                attempt += 1
                await asyncio.sleep(_RETRY.pause(attempt))
        if attempt:
            _log.info("ClickHouse took the rows", rows=len(rows), attempts=attempt + 1)
        for table, count in Counter(row.TABLE for row in rows).items():
            self._metrics.rows.labels(table).inc(count)
        self.rollups.written(minutes)
