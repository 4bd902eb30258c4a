"""Runs the statements of panels: bounded, a few at a time, each at most once in a few seconds.

A statement that nobody waits for any more is not begun: leaving a board withdraws its questions.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import msgspec

from connectors.process.leaving import aside
from pipeline.clickhouse.client import Connection, moment, store_unavailable
from pipeline.dashboards.page.question import Question
from pipeline.dashboards.panel import Panel, used_parameters
from pipeline.dashboards.queries import FINEST
from schemas.settings import ClickHouse

AT_ONCE = 4
"""Statements that run at the same time; the others wait."""
STOPPING_SECONDS = 10
"""How much longer than a statement's time limit the store may take to report that it stopped it."""
FRESH_SECONDS = 3.0
"""An answer serves everybody who asks the same within this time."""
SHARED_PARTS = 60
SHARED_SECONDS = 60
"""A shared answer serves ranges as long that end up to 1/SHARED_PARTS of it, or SHARED_SECONDS, later."""
KEPT = 256
"""Answers; what was asked longest ago leaves first."""
MAX_ROWS = 50_000
LIMITS = {"max_result_rows": MAX_ROWS, "result_overflow_mode": "throw"}


class Answer(msgspec.Struct, frozen=True):
    """Columns of a result, times as seconds since the epoch."""

    names: tuple[str, ...]
    columns: list[list[Any]]
    times: tuple[str, ...]
    """The columns that are times."""
    step: int
    """Seconds that a point covers: whole windows of the table that the rows were read from."""


@dataclass
class _Asked:
    """A statement that was asked, and how many wait for its answer."""

    question: Question
    begun: float
    task: asyncio.Task[Answer] = field(init=False)
    waiting: int = 0
    running: bool = False

    def serves(self, question: Question, seconds: float) -> bool:
        """Return whether its answer serves `question`, which may be asked and end this many seconds later."""
        if not 0 <= question.end - self.question.end < seconds:
            return False
        if not self.task.done():
            return True
        return time.monotonic() - self.begun < seconds and _failure(self.task) is None


class Answers:
    """Runs statements. Raises StoreUnavailable, with what to do, whenever the store does not answer."""

    def __init__(self, store: ClickHouse, panel_seconds: float) -> None:
        # The store should stop a statement, and report that, before the client gives up.
        patience = max(store.timeout_seconds, panel_seconds + STOPPING_SECONDS)
        self._store = msgspec.structs.replace(store, timeout_seconds=patience)
        self._panel_seconds = panel_seconds
        self._limits = {**LIMITS, "max_execution_time": panel_seconds, "database": store.database}
        self._connection = Connection(self._store)
        self._turns = asyncio.Semaphore(AT_ONCE)
        self._kept: OrderedDict[tuple[str, Question], _Asked] = OrderedDict()

    @property
    def database(self) -> str:
        return self._store.database

    def longest_seconds(self, panels: int) -> int:
        """Return how long so many panels, asked at once, may wait for their turns and for the store."""
        turns = 1 + math.ceil(panels / AT_ONCE)  # the first turn finds the length of windows
        return math.ceil(turns * self._panel_seconds) + STOPPING_SECONDS

    async def of(self, owner: str, sql: str, question: Question) -> Answer:
        """Return the answer of `sql`, which belongs to `owner`."""
        return await self._shown((owner, question), sql, question, FRESH_SECONDS)

    async def of_panel(self, panel: Panel, question: Question) -> Answer:
        """Return the rows of a panel, which may be a part of an answer that it shares."""
        if panel.shared is None:
            return await self.of(panel.id, panel.sql, question)
        length = question.end - question.start
        whole = await self._shown(
            (panel.shared.id, question._replace(start=0, end=length)),
            panel.shared.sql,
            question,
            max(FRESH_SECONDS, min(SHARED_SECONDS, length / SHARED_PARTS)),
        )
        return _part_of(whole, panel)

    async def _shown(self, key: tuple[str, Question], sql: str, question: Question, seconds: float) -> Answer:
        asked = self._kept.get(key)
        if asked is None or not asked.serves(question, seconds):
            asked = self._kept[key] = _Asked(question, time.monotonic())
            asked.task = asyncio.ensure_future(self._ask(key[0], sql, asked))
            # Retrieves the exception, as nobody else may do so.
            asked.task.add_done_callback(_failure)
            self._kept.move_to_end(key)
            while len(self._kept) > KEPT:
                self._kept.popitem(last=False)
        asked.waiting += 1
        try:
            return await asyncio.shield(asked.task)
        finally:
            asked.waiting -= 1
            if (
                not asked.waiting
                and not asked.running
                and asked.task.cancel()
                and self._kept.get(key) is asked
            ):
                del self._kept[key]

    def close(self) -> None:
        self._connection.close()

    async def _ask(self, owner: str, sql: str, asked: _Asked) -> Answer:
        question = asked.question
        parameters = question.parameters(used_parameters(owner, sql))
        step = question.step
        if "step" in parameters:
            # Before a turn is taken, as this query takes one itself.
            windows = await self.of("windows", FINEST, Question(question.start, question.end))
            seconds = windows.columns[0][0]
            step = -(-step // seconds) * seconds
        async with self._turns:
            asked.running = True
            # In a thread of its own, so that a store that hangs does not hold up the exit.
            names, rows = await aside(lambda: self._run(sql, parameters))
        columns = [[_plain(row[index]) for row in rows] for index in range(len(names))]
        times = tuple(
            name for index, name in enumerate(names) if any(isinstance(row[index], datetime) for row in rows)
        )
        return Answer(names, columns, times, step)

    def _run(self, sql: str, parameters: Mapping[str, Any]) -> tuple[tuple[str, ...], list[tuple[Any, ...]]]:
        with store_unavailable(self._store):
            client = self._connection.client()
            result = client.query(sql, parameters=_unambiguous(parameters), settings=self._limits)
        return tuple(result.column_names), [tuple(row) for row in result.result_rows]


def _failure(task: asyncio.Task[Answer]) -> BaseException | None:
    """Return why a task that is done has no answer."""
    return asyncio.CancelledError() if task.cancelled() else task.exception()


def _part_of(whole: Answer, panel: Panel) -> Answer:
    """Return the columns of a panel, with only the rows of its part."""
    of_name = dict(zip(whole.names, whole.columns, strict=True))
    own = [row for row, part in enumerate(of_name.get("part", ())) if part == panel.part]
    columns = [[of_name[column][row] for row in own] for column in panel.shows.values()] if own else []
    return Answer(tuple(panel.shows), columns, (), whole.step)


def _unambiguous(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Turn times into seconds: as text they would be in the session's zone, where an hour may occur twice."""
    return {
        name: int(moment(value)) if isinstance(value, datetime) else value
        for name, value in parameters.items()
    }


def _plain(value: Any) -> Any:
    """Return a value as JSON knows it."""
    if isinstance(value, datetime):
        return moment(value)
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value
