"""Passes each row of an agent on, once: to the tables, the figures topic and the worker's own page."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence

from pipeline.worker.checkpoint.record import Record
from pipeline.worker.sink.figures import Figures
from pipeline.worker.sink.recent import RecentRows
from pipeline.worker.sink.store import StoreRows
from pipeline.worker.telemetry import WorkerMetrics
from schemas.figures import FIGURES
from schemas.rows import Row

_AT_ONCE = 2_000
"""Rows that are encoded before other tasks get their turn of the event loop."""


class Sink:
    """The output of one agent. Rows are written first, then figures are committed with what they follow from.

    So a reader of a figure finds its row, or a newer one, in the tables.
    """

    def __init__(
        self,
        metrics: WorkerMetrics,
        *,
        store: StoreRows | None,
        figures: Figures | None,
        recent: RecentRows | None = None,
    ) -> None:
        """`store`, `figures`: None if not configured; `recent` keeps rows for the worker's own page."""
        self._metrics = metrics
        self._store = store
        self._figures = figures
        self._recent = recent

    async def write(self, rows: Sequence[Row]) -> None:
        """Return once the tables, if any, have the rows; retry while ClickHouse fails. Raises RowsRefused."""
        if self._recent is not None:
            self._recent.add(rows)
        if self._store is not None:
            await self._store.write(rows)

    async def records(self, rows: Sequence[Row]) -> list[Record]:
        """Return the figures of rows, for the transaction that commits what they follow from."""
        records: list[Record] = []
        if self._figures is None:
            return records
        for begin in range(0, len(rows), _AT_ONCE):
            some = rows[begin : begin + _AT_ONCE]
            records += self._figures.records(some)
            await asyncio.sleep(0)
        for table, count in Counter(row.TABLE for row in rows if type(row) in FIGURES).items():
            self._metrics.figures.labels(table).inc(count)
        return records

    def taken_over(self) -> None:
        """Note that partitions came from another worker, which may not have recomputed its minutes."""
        if self._store is not None:
            self._store.rollups.others_left()

    def given_up(self) -> None:
        """Note that all partitions of the agent may be another worker's now."""
        if self._recent is not None:
            self._recent.clear()
