"""A round whose rows ClickHouse does not take for long, beside another worker."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timezone
from typing import Any

from pipeline.applying.steps import Steps
from pipeline.clickhouse.rollups import Rollups
from pipeline.clickhouse.writer import Tables
from pipeline.errors import StoreUnavailable
from pipeline.worker.checkpoint.rounds import CheckpointRounds
from pipeline.worker.sink.figures import Figures
from pipeline.worker.sink.sink import Sink
from pipeline.worker.sink.store import StoreRows
from pipeline.worker.telemetry import WorkerMetrics
from schemas.rows import FlowRow, Row
from schemas.settings import ClickHouse

NOW = datetime.now(timezone.utc).replace(second=0, microsecond=0)
ROW = FlowRow(NOW, "m", "r", 0, "gpu", 0, *[0] * 10, [], "complete", NOW, 0)


async def same() -> None:
    """The topics are those that they were."""


@dataclass
class Store:
    """The note of one minute, and what another worker makes of it."""

    seconds: float = 0.0
    noted: int = 0
    noted_at: float = 0.0
    done: int = 0
    attempts: int = 0
    due_at_writing: list[bool] = field(default_factory=list)

    def another_worker(self) -> None:
        if self.seconds - self.noted_at > 600.0:
            self.done = self.noted


class NotingRollups(Rollups):
    def __init__(self, store: Store) -> None:
        super().__init__(ClickHouse(), WorkerMetrics(), clock=lambda: store.seconds)
        self.store = store

    def _server_time(self) -> datetime:
        return NOW

    def _insert(self, rows: Sequence[Sequence[Any]]) -> None:
        for _, _, _, noted, _, done in rows:
            if noted > self.store.noted:
                self.store.noted, self.store.noted_at = noted, self.store.seconds
            self.store.done = max(done, self.store.done)


class LateTables(Tables):
    """Takes rows at the second attempt, eleven minutes after the first."""

    def __init__(self, store: Store) -> None:
        super().__init__(ClickHouse())
        self.store = store

    async def insert(self, rows: Sequence[Row]) -> None:
        self.store.attempts += 1
        if self.store.attempts == 1:
            self.store.seconds += 660.0
            self.store.another_worker()
            raise StoreUnavailable("http://store", "away")
        self.store.another_worker()
        self.store.due_at_writing.append(self.store.noted > self.store.done)


@dataclass
class Cut:
    rows: list[Row]
    dirty: bool = False


@dataclass
class Partition:
    """Has one row to write, and nothing to commit."""

    steps: int = 0
    seconds: float = 0.0
    """That each step takes."""
    has_errand: bool = False
    in_cut: bool = False

    @property
    def state(self) -> Partition:
        return self

    def errand(self, now: float) -> Callable[[], None] | None:
        return (lambda: time.sleep(self.seconds)) if self.has_errand else None

    def cutting(self, now: float) -> Steps[tuple[Cut, list[Any]]]:
        self.in_cut = True
        for _ in range(self.steps):
            time.sleep(self.seconds)
            yield
        self.in_cut = False
        return Cut([ROW]), []


def made(tables: Tables, rollups: Rollups, figures: Figures | None = None) -> CheckpointRounds:
    metrics = WorkerMetrics()
    sink = Sink(metrics, store=StoreRows(tables, rollups, metrics), figures=figures)
    return CheckpointRounds(sink, metrics, hold_seconds=60.0, same_topics=same)


async def test_rows_that_wait_for_long_are_noted_when_they_are_written() -> None:
    store = Store()
    tables = LateTables(store)
    rounds = made(tables, NotingRollups(store))
    await rounds.save([Partition()])  # type: ignore[list-item]
    tables.close()
    assert store.attempts == 2
    assert store.due_at_writing == [True]


class StoringTables(Tables):
    """Takes all rows."""

    async def insert(self, rows: Sequence[Row]) -> None: ...


async def test_others_have_their_turn_while_a_large_partition_is_cut_and_nothing_is_applied() -> None:
    store, tables = Store(), StoringTables(ClickHouse())
    rounds = made(tables, NotingRollups(store))
    saving = asyncio.create_task(rounds.save([Partition(steps=40, seconds=0.005), Partition()]))  # type: ignore[list-item]
    turns = 0
    while not saving.done():
        await asyncio.sleep(0)
        turns += rounds.holding
    assert saving.result() < 0.1, "of the processor"
    tables.close()
    assert turns >= 5, "200 ms, in turns of 20 ms and a step"
    assert not rounds.holding
    await asyncio.wait_for(rounds.released(), 1.0)


async def test_nothing_is_applied_in_a_cut_that_follows_an_errand_at_once() -> None:
    store, tables = Store(), StoringTables(ClickHouse())
    rounds = made(tables, NotingRollups(store))
    partitions = [Partition(steps=10, seconds=0.005, has_errand=True) for _ in range(3)]
    saving = asyncio.create_task(rounds.save(partitions))  # type: ignore[arg-type]
    applied = 0
    while not saving.done():
        await asyncio.sleep(0)
        if rounds.holding:
            await rounds.released()
        assert not any(partition.in_cut for partition in partitions)
        applied += 1
    tables.close()
    assert applied


class SlowTables(Tables):
    """Takes rows when it is told to."""

    def __init__(self) -> None:
        super().__init__(ClickHouse())
        self.may_take = asyncio.Event()

    async def insert(self, rows: Sequence[Row]) -> None:
        await self.may_take.wait()


async def test_applying_waits_for_the_end_of_a_round_beside_which_much_was_applied() -> None:
    store, tables = Store(), SlowTables()
    rounds = made(tables, NotingRollups(store))
    rounds.hold_to_the_end()
    assert not rounds.holding, "there is none"
    saving = asyncio.create_task(rounds.save([Partition(), Partition()]))  # type: ignore[list-item]
    await asyncio.sleep(0.05)
    assert not rounds.holding, "rows are written beside"
    rounds.hold_to_the_end()
    released = asyncio.create_task(rounds.released())
    await asyncio.sleep(0.05)
    assert rounds.holding
    assert not released.done()
    tables.may_take.set()
    await asyncio.wait_for(asyncio.gather(saving, released), 60.0)
    assert not rounds.holding
    tables.close()
