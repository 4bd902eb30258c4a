"""Both agents of a worker that owns everything, in one process without Kafka: what a large state costs.

Run as a program, so that its memory is its own: `large_state.py ENGINES BLOCKS SECONDS HOURS` prints a figure
a line, as name, value and unit between tabs. Times are CPU times of the thread. A cut is what blocks a
worker's loop; what a state has copied beside the loop before it is said by itself.
"""

from __future__ import annotations

import gc
import os
import sys
import time
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from large_fleet import START, LargeEngine

from pipeline.fleet.state import FleetState
from pipeline.kafka.decoding import decode_residency
from pipeline.residency.partition import PartitionState
from pipeline.worker.warming import warm_up
from schemas.events import EventsRecord
from schemas.settings import Fleet, Worker
from tests.support.client_partition import client_partition

PARTITIONS = 8
FAST_SECONDS = 30
"""Of a step when churn is played fast."""

_encode = msgspec.msgpack.Encoder().encode


class Checkpoints:
    """What the cuts of one agent gave; the values themselves are kept of one partition only."""

    def __init__(self) -> None:
        self.kept: dict[bytes, bytes] = {}
        self.pauses: list[float] = []
        self.copying: list[float] = []
        self.largest = 0
        """Bytes of the largest record."""
        self.sizes: list[int] = []
        self._size_of: dict[tuple[int, bytes], int] = {}

    def cut(self, number: int, state: Any, now: float) -> Any:
        errand = state.errand(now)
        if errand is not None:
            began = time.thread_time()
            errand()
            self.copying.append(time.thread_time() - began)
        began = time.thread_time()
        cut = state.cut(now)
        self.pauses.append(time.thread_time() - began)
        sizes = {key: len(value or b"") for key, value in cut.checkpoints}
        self.sizes.append(sum(sizes.values()))
        self.largest = max([self.largest, *sizes.values()])
        for key, value in cut.checkpoints:
            self._size_of[number, key] = sizes[key]
            if number == 0:
                self.kept[key] = value or b""
        return cut

    @property
    def bytes_kept(self) -> int:
        """What compaction leaves of them."""
        return sum(self._size_of.values())

    def begin_anew(self) -> None:
        self.pauses.clear()
        self.copying.clear()
        self.sizes.clear()


class WholeWorker:
    """The states of both agents."""

    def __init__(self) -> None:
        self.replica = [PartitionState(number, Worker(), shards=PARTITIONS) for number in range(PARTITIONS)]
        self.fleet = [FleetState(shard, Fleet(), carry_seconds=0.0) for shard in range(PARTITIONS)]
        self.checkpoints = {"replica": Checkpoints(), "fleet": Checkpoints()}
        self.announced = 0
        """Bytes of residency records."""

    def apply(self, record: EventsRecord) -> None:
        state = self.replica[client_partition(record.replica, PARTITIONS)]
        state.apply(state.next_offset, record)

    def cut(self, now: float) -> None:
        """Cut all partitions, follow what they announce, and cut all shards."""
        for number, state in enumerate(self.replica):
            for shard, _, value in self.checkpoints["replica"].cut(number, state, now).residency:
                self.announced += len(value)
                following = self.fleet[shard]
                following.apply(following.next_offset, decode_residency(value, ()))
        for number, following in enumerate(self.fleet):
            self.checkpoints["fleet"].cut(number, following, now)


def resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def say(name: str, value: float, unit: str) -> None:
    print(f"{name}\t{value}\t{unit}", flush=True)


def second_by_second(worker: WholeWorker, engines: list[LargeEngine], seconds: int, count: int) -> float:
    """Play so many seconds with a cut in each, say what they cost; return the event time at the end."""
    read, at = 0, START
    for _ in range(seconds):
        at += 1.0
        for engine in engines:
            for record in engine.little_records(engine.exchanged(1.0), at):
                read += len(_encode(record))
                worker.apply(record)
        worker.cut(at)
    each = seconds * len(engines) * 1e3
    say("read of each source", read / each, "kB/s")
    say("announced of each source", worker.announced / each, "kB/s")
    for agent, checkpoints in worker.checkpoints.items():
        pauses, sizes = np.array(checkpoints.pauses) * 1e3, np.array(checkpoints.sizes)
        say(f"{agent} agent: a cut of a partition, median", float(np.median(pauses)), "ms")
        say(f"{agent} agent: a cut of a partition, p99", float(np.percentile(pauses, 99)), "ms")
        say(f"{agent} agent: a cut of a partition, longest", float(pauses.max()), "ms")
        if checkpoints.copying:
            say(f"{agent} agent: copied beside the loop, longest", max(checkpoints.copying) * 1e3, "ms")
        say(f"{agent} agent: checkpoint of a partition, largest", float(sizes.max()) / 1e6, "MB")
        say(f"{agent} agent: record of a checkpoint, largest", checkpoints.largest / 1e6, "MB")
        say(f"{agent} agent: checkpoints of each source", float(sizes.sum()) / each, "kB/s")
        say(f"{agent} agent: checkpoints, of what is read", float(sizes.sum()) / read, "")
        say(f"{agent} agent: checkpoints that are kept", checkpoints.bytes_kept / count, "B a block")
    return at


def played_fast(worker: WholeWorker, engines: list[LargeEngine], at: float, hours: float) -> None:
    """Play hours of churn in long steps; say after an eighth and after each quarter what it takes."""
    steps = max(8, int(hours * 3600 / FAST_SECONDS))
    played = time.monotonic()
    for checkpoints in worker.checkpoints.values():
        checkpoints.begin_anew()
    for step in range(1, steps + 1):
        at += FAST_SECONDS
        for engine in engines:
            worker.apply(engine.large_record(engine.exchanged(FAST_SECONDS), at))
        worker.cut(at)
        if step in (steps // 8, steps // 4, steps // 2, 3 * steps // 4, steps):
            said = f"after {step / steps * hours:.2f} h of churn"
            kept = sum(checkpoints.bytes_kept for checkpoints in worker.checkpoints.values())
            say(f"{said}: memory", resident() / 1e6, "MB")
            say(f"{said}: checkpoints kept", kept / 1e6, "MB")
            for agent, checkpoints in worker.checkpoints.items():
                say(f"{said}: {agent} agent, longest cut since", max(checkpoints.pauses) * 1e3, "ms")
                mean = sum(checkpoints.sizes) / len(checkpoints.sizes)
                say(f"{said}: {agent} agent, checkpoint of a partition, mean since", mean / 1e6, "MB")
                checkpoints.begin_anew()
    say("churn, times as fast as it is", hours * 3600 / (time.monotonic() - played), "")


def measured(count: int, blocks: int, seconds: int, hours: float) -> None:
    """Fill the caches, play `seconds` with a cut in each, then `hours` fast, and load a partition again."""
    warm_up()
    # As a worker does.
    gc.freeze()
    gc.set_threshold(50_000)
    say("memory of the empty process", resident() / 1e6, "MB")
    worker = WholeWorker()
    engines = [LargeEngine(number, blocks, count) for number in range(count)]
    for number, engine in enumerate(engines):
        for record in engine.opened():
            worker.apply(record)
        if number % PARTITIONS == PARTITIONS - 1:
            worker.cut(START)
    worker.cut(START)
    for checkpoints in worker.checkpoints.values():
        checkpoints.begin_anew()
    worker.announced = 0
    held = sum(engine.blocks for engine in engines)
    say("blocks resident", held, "")
    at = second_by_second(worker, engines, seconds, held)
    if hours:
        played_fast(worker, engines, at, hours)
    tables = sum(
        pool.copies.entries.nbytes + pool.copies.contents.nbytes
        for state in worker.replica
        for source in state.sources.values()
        for pool in source.pools.counted
    )
    say("replica agent: tables", tables / held, "B a block")
    tables = sum(
        table.nbytes
        for state in worker.fleet
        for table in (state.index.blocks, state.index.pairs, state.index.losses)
    )
    say("fleet agent: tables", tables / held, "B a block")
    worker.replica.clear()
    worker.fleet.clear()
    kept = {agent: checkpoints.kept for agent, checkpoints in worker.checkpoints.items()}
    began = time.thread_time()
    PartitionState.restore(0, Worker(), shards=PARTITIONS, latest=kept["replica"])
    say("replica agent: one partition of eight restored", time.thread_time() - began, "s")
    began = time.thread_time()
    FleetState(0, Fleet(), carry_seconds=0.0, latest=kept["fleet"])
    say("fleet agent: one shard of eight restored", time.thread_time() - began, "s")


if __name__ == "__main__":
    measured(int(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), float(sys.argv[4]))
