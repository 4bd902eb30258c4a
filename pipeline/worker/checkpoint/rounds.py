"""A checkpoint round: cut every partition, write all rows, then commit a transaction for each partition.

Rows of several partitions share one insert per table, so that ClickHouse gets few parts however many
partitions a worker owns. Rows are written before anything commits: after a crash they are written again,
equal or newer.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import TypeVar

from pipeline.applying.state import Cut
from pipeline.applying.steps import Steps
from pipeline.worker.checkpoint.record import Record
from pipeline.worker.partition import OwnedPartition
from pipeline.worker.sink.sink import Sink
from pipeline.worker.telemetry import WorkerMetrics
from schemas.rows import Row

_TRANSACTIONS = 4
_TURN_SECONDS = 0.02
"""A cut holds up the event loop for so long, and until its next source is done."""

_Record = TypeVar("_Record")
_Cut = TypeVar("_Cut", bound=Cut)
_Result = TypeVar("_Result")


class CheckpointRounds:
    """Runs rounds one after the other and says when applying has to wait for one."""

    def __init__(
        self,
        sink: Sink,
        metrics: WorkerMetrics,
        *,
        hold_seconds: float,
        same_topics: Callable[[], Awaitable[None]],
        clock: Callable[[], float] = time.time,
    ) -> None:
        """`hold_seconds`: how long applying goes on during a round. `same_topics` raises if what was applied
        may be of another topic than what was applied before."""
        self.sink = sink
        self._metrics = metrics
        self._hold_seconds = hold_seconds
        self._same_topics = same_topics
        self._clock = clock
        self._round = asyncio.Lock()
        self._transactions = asyncio.Semaphore(_TRANSACTIONS)
        self._may_apply = asyncio.Event()
        self._may_apply.set()
        self._overdue = False
        """Applying waits for the end of the round, as it has taken long, or much was applied during it."""
        self.holding = False
        """Applying has to wait: `await released()`."""

    def hold_to_the_end(self) -> None:
        """Let applying wait for the end of the round, if there is one."""
        if self._round.locked():
            self._hold_overdue()

    async def released(self) -> None:
        """Return when applying may go on."""
        # Between the end of one hold and this task's turn the next one may have begun.
        while self.holding:
            await self._may_apply.wait()

    async def save(self, owned: Iterable[OwnedPartition[_Record, _Cut]]) -> float:
        """Save the partitions; return, when everything is committed, how many seconds of processor time it
        took to cut them. Raises CheckpointFailed, TopicMadeAgain, TopicMismatch.

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

    async def _save(self, owned: Sequence[OwnedPartition[_Record, _Cut]]) -> float:
        cut_seconds = 0.0
        rows: list[Row] = []
        commits: list[tuple[OwnedPartition[_Record, _Cut], int, list[Record]]] = []
        for partition in owned:
            errand = partition.state.errand(self._clock())
            if errand is not None:
                await self._beside_the_loop(errand)
            cut, records, processor = await self._cut(partition)
            cut_seconds += processor
            rows += cut.rows
            if cut.dirty:
                if not partition.repeats(cut):
                    records += await self.sink.records(cut.rows)
                commits.append((partition, cut.next_offset, records))
            await asyncio.sleep(0)
        # After the cuts: all that is in them was fetched before, so it is from these topics.
        if rows or commits:
            await self._same_topics()
        if rows:
            began = time.perf_counter()
            await self.sink.write(rows)
            self._metrics.checkpoint_seconds.labels("rows").observe(time.perf_counter() - began)
        results = await asyncio.gather(*(self._commit(*commit) for commit in commits), return_exceptions=True)
        for result in results:
            if isinstance(result, BaseException):
                raise result
        self._metrics.checkpoint_timestamp.set(self._clock())
        return cut_seconds

    async def _cut(self, partition: OwnedPartition[_Record, _Cut]) -> tuple[_Cut, list[Record], float]:
        """Return the cut, the records of its transaction, and the seconds of processor time that it took.

        Now and then it lets other tasks run; nothing is applied meanwhile.
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

    async def _commit(
        self, partition: OwnedPartition[_Record, _Cut], next_offset: int, records: list[Record]
    ) -> None:
        async with self._transactions:
            began = time.perf_counter()
            await partition.log.commit(next_offset, records)
            self._metrics.checkpoint_seconds.labels("transaction").observe(time.perf_counter() - began)
            self._metrics.checkpoints.labels(partition.role.name).inc()

    async def _beside_the_loop(self, errand: Callable[[], None]) -> None:
        """Run `errand` in a thread: the event loop goes on, but nothing is applied."""
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
    """Run steps for a while; return their result, None if some are left."""
    end = time.perf_counter() + _TURN_SECONDS
    try:
        while time.perf_counter() < end:
            next(steps)
    except StopIteration as last:
        result: _Result = last.value
        return result
    return None
