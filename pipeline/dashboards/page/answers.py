"""Runs the statements of panels: bounded, a few at a time, each at most once in a few seconds."""

from __future__ import annotations

import asyncio
import math
import time
from collections import OrderedDict
from collections.abc import Mapping
from datetime import datetime
from typing import Any

import msgspec
from clickhouse_connect.driver.client import Client

from pipeline.clickhouse.client import connect, store_unavailable
from pipeline.dashboards.page.question import Question
from pipeline.dashboards.panel import used_parameters
from schemas.settings import ClickHouse

AT_ONCE = 4
"""Statements that run at the same time; the others wait."""
FRESH_SECONDS = 3.0
"""An answer serves everybody who asks the same within this time."""
KEPT = 256
MAX_SECONDS = 20
MAX_ROWS = 50_000
LIMITS = {"max_execution_time": MAX_SECONDS, "max_result_rows": MAX_ROWS, "result_overflow_mode": "throw"}


class Answer(msgspec.Struct, frozen=True):
    """Columns of a result, times as seconds since the epoch."""

    names: tuple[str, ...]
    columns: list[list[Any]]
    step: int
    """Seconds that a point of time stands for."""


class Answers:
    """Raises StoreUnavailable, with what to do, whenever the store does not answer."""

    def __init__(self, store: ClickHouse) -> None:
        self._store = store
        self._client: Client | None = None
        self._turns = asyncio.Semaphore(AT_ONCE)
        self._kept: OrderedDict[tuple[str, Question], tuple[float, asyncio.Task[Answer]]] = OrderedDict()

    async def of(self, owner: str, sql: str, question: Question) -> Answer:
        """Return the answer of `sql`, which belongs to `owner`."""
        key = (owner, question)
        now = time.monotonic()
        if key in self._kept:
            begun, task = self._kept[key]
            if now - begun < FRESH_SECONDS and not (task.done() and task.exception() is not None):
                return await asyncio.shield(task)
        task = asyncio.ensure_future(self._ask(owner, sql, question))
        self._kept[key] = (now, task)
        self._kept.move_to_end(key)
        while len(self._kept) > KEPT:
            self._kept.popitem(last=False)
        return await asyncio.shield(task)

    def close(self) -> None:
        if self._client is not None:
            self._client.close()
            self._client = None

    async def _ask(self, owner: str, sql: str, question: Question) -> Answer:
        parameters = question.parameters(used_parameters(owner, sql))
        async with self._turns:
            names, rows = await asyncio.to_thread(self._run, sql, parameters)
        columns = [[_plain(row[index]) for row in rows] for index in range(len(names))]
        return Answer(names, columns, question.step)

    def _run(self, sql: str, parameters: Mapping[str, Any]) -> tuple[tuple[str, ...], list[tuple[Any, ...]]]:
        with store_unavailable(self._store):
            if self._client is None:
                self._client = connect(self._store)
            result = self._client.query(
                sql, parameters=dict(parameters), settings={**LIMITS, "database": self._store.database}
            )
        return tuple(result.column_names), [tuple(row) for row in result.result_rows]


def _plain(value: Any) -> Any:
    """Return a value as JSON knows it."""
    if isinstance(value, datetime):
        return value.timestamp()
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value
