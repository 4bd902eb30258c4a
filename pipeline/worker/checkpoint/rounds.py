"""A checkpoint round: cut every partition, write all rows, then commit a transaction for each partition.

Rows of several partitions share one insert per table, so that ClickHouse gets few parts however many
partitions a worker owns. Rows are written before anything commits: after a crash they are written again,
equal or newer.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any, TypeVar

import structlog

from connectors.process.backoff import Backoff
from connectors.process.limited_log import LogLimiter
from pipeline.clickhouse.rollups import Rollups
from pipeline.clickhouse.writer import Tables
from pipeline.errors import StoreUnavailable
from pipeline.residency.steps import Steps
from pipeline.worker.checkpoint.log import Record
from pipeline.worker.partition import OwnedPartition
from pipeline.worker.telemetry import WorkerMetrics
from schemas.rows import Row

_TRANSACTIONS = 4
_TURN_SECONDS = 0.02
"""For so long a cut keeps the event loop, and until its next source is done."""
_RETRY = Backoff(first=0.2, longest=2.0)

_Result = TypeVar("_Result")

_log = structlog.get_logger(__name__)


class CheckpointRounds:
    """Runs rounds one after the other and says when applying has to wait for one."""

    def __init__(
        self,
        tables: Tables,
        rollups: Rollups,
        metrics: WorkerMetrics,
        *,
        hold_seconds: float,
        same_topics: Callable[[], Awaitable[None]],
        clock: Callable[[], float] = time.time,
    ) -> None:
        """`hold_seconds`: for so long applying goes on beside a round. `same_topics` raises if what was
        applied may be of another topic than what was applied before."""
        self._tables = tables
        self._rollups = rollups
        self._metrics = metrics
        self._hold_seconds = hold_seconds
        self._same_topics = same_topics
        self._clock = clock
        self._round = asyncio.Lock()
        self._transactions = asyncio.Semaphore(_TRANSACTIONS)
        self._may_apply = asyncio.Event()
        self._may_apply.set()
        self._limiter = LogLimiter()
        self._overdue = False
        """Applying waits for the end of the round, which has taken long, or beside which much was applied."""
        self.holding = False
        """Applying has to wait: `await released()`."""

    def taken_over(self) -> None:
        """Partitions came from another worker; it may have been killed before it recomputed its minutes."""
        self._rollups.others_left()

    def hold_to_the_end(self) -> None:
        """Let applying wait for the end of the round, if there is one."""
        if self._round.locked():
            self._hold_overdue()

    async def released(self) -> None:
        """Return when applying may go on."""
        # Between the end of one hold and this task's turn the next one may have begun.
        while self.holding:
            await self._may_apply.wait()

    async def save(self, owned: Iterable[OwnedPartition]) -> float:
        """Save the partitions; returns when everything is committed, and how many seconds of the processor
        it took to cut them. Raises CheckpointFailed, TopicMadeAgain, TopicMismatch.

        While ClickHouse fails this keeps trying: cancelling it loses the cuts, so the process must end then.
        """
        async with self._round:
            hold = asyncio.get_running_loop().call_later(self._hold_seconds, self._hold_overdue)
            try:
                return await self._save(list(owned))
            finally:
                hold.cancel()
                self._overdue = False
                self._release()

    async def _save(self, owned: Sequence[OwnedPartition]) -> float:
        cut_seconds = 0.0
        rows: list[Row] = []
        commits: list[tuple[OwnedPartition, int, list[Record]]] = []
        for partition in owned:
            errand = partition.state.errand(self._clock())
            if errand is not None:
                await self._beside_the_loop(errand)
            cut, records, processor = await self._cut(partition)
            cut_seconds += processor
            rows += cut.rows
            if cut.dirty:
                commits.append((partition, cut.next_offset, records))
            await asyncio.sleep(0)
        # After the cuts: all that is in them was fetched before, so it is of these topics.
        if rows or commits:
            await self._same_topics()
        if rows:
            await self._write(rows)
        results = await asyncio.gather(*(self._commit(*commit) for commit in commits), return_exceptions=True)
        for result in results:
            if isinstance(result, BaseException):
                raise result
        self._metrics.checkpoint_timestamp.set(self._clock())
        return cut_seconds

    async def _cut(self, partition: OwnedPartition) -> tuple[Any, list[Record], float]:
        """Return the cut, the records of its transaction, and the seconds of the processor that it took.

        Now and then it gives others their turn; nothing is applied meanwhile.
        """
        steps = partition.cutting(self._clock())
        held = processor = 0.0
        cut = None
        while cut is None:
            if held:
                self._hold()
                await asyncio.sleep(0)
            began, before = time.perf_counter(), time.thread_time()
            cut = _turn(steps)
            held += time.perf_counter() - began
            processor += time.thread_time() - before
        if not self._overdue:
            self._release()
        self._metrics.checkpoint_seconds.labels("cut").observe(held)
        return *cut, processor

    async def _commit(self, partition: OwnedPartition, next_offset: int, records: list[Record]) -> None:
        async with self._transactions:
            began = time.perf_counter()
            await partition.log.commit(next_offset, records)
            self._metrics.checkpoint_seconds.labels("transaction").observe(time.perf_counter() - began)
            self._metrics.checkpoints.labels(partition.role.name).inc()

    async def _write(self, rows: Sequence[Row]) -> None:
        began = time.perf_counter()
        attempt = 0
        minutes = None
        while True:
            try:
                if minutes is None:
                    minutes = await self._rollups.announce(rows)
                else:
                    await self._rollups.renew(minutes)
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
        self._rollups.written(minutes)
        self._metrics.checkpoint_seconds.labels("rows").observe(time.perf_counter() - began)

    async def _beside_the_loop(self, errand: Callable[[], None]) -> None:
        """Run it in a thread: the loop goes on, and nothing is applied."""
        began = time.perf_counter()
        self._hold()
        await asyncio.to_thread(errand)
        if not self._overdue:
            self._release()
        self._metrics.checkpoint_seconds.labels("copy").observe(time.perf_counter() - began)

    def _hold_overdue(self) -> None:
        self._overdue = True
        self._hold()

    def _hold(self) -> None:
        self.holding = True
        self._may_apply.clear()
        self._metrics.holding.set(1)

    def _release(self) -> None:
        self.holding = False
        self._may_apply.set()
        self._metrics.holding.set(0)


def _turn(steps: Steps[_Result]) -> _Result | None:
    """Take steps for a while; return what comes of them, None if some are left."""
    end = time.perf_counter() + _TURN_SECONDS
    try:
        while time.perf_counter() < end:
            next(steps)
    except StopIteration as last:
        result: _Result = last.value
        return result
    return None
