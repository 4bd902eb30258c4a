"""The fleet agent: changes of residency per second and core, through Faust and alone, and bytes an entry.

With large records and with small ones: the fewer changes a source has in a record, the more each costs.
"""

from __future__ import annotations

import asyncio
import os
import time
from typing import NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt
from agent import committed
from aiokafka import AIOKafkaProducer
from figures import Figures
from processes import cpu_seconds, launched

from pipeline.clickhouse import migrations
from pipeline.fleet.kernel.counts import LOSSES, USED_BLOCKS, USED_PAIRS
from pipeline.fleet.state import FleetState
from pipeline.kafka import topics
from pipeline.worker.warming import warm_up
from schemas.residency import EVICTED, FILLED, ResidencyChanges, ResidencyRecord, SourceChanges
from schemas.settings import ClickHouse, Fleet, Kafka, Settings

SHARDS = 8
UNIVERSE = 400_000
"""Blocks of a shard that sources fill from; small ones more often."""
CHAIN = 32
"""Blocks of a shard that begin with the same one."""
SIZE = 16
"""Tokens of a block."""
TOGETHER = 8
"""Blocks of a shard that come at once, where sources receive KV."""


class Layout(NamedTuple):
    """What the records of a shard look like; every eighth is of the same sources."""

    name: str
    """Beginning of the names of its figures."""
    short: str
    sources: int
    resident: int
    """Blocks of a source in a shard."""
    at_first: int
    """Fills of a source in a record until so many are resident."""
    changes: int
    """Of a source in a record from then on: half fills, half evictions."""
    records: int
    """Of each shard: so many that starting the worker, which is taken off, matters little."""

    @property
    def at_once(self) -> int:
        """Return how many sources a record is of."""
        return self.sources // 8


LARGE = Layout("fleet", "bench-fleet", 64, 4_000, 4_000, 250, 200)
SMALL = Layout("fleet, small records", "bench-fleet-small", 256, 500, 40, 40, 640)
"""As of hundreds of engines with a cut a second."""


def records_of(shard: int, layout: Layout, *, receive: bool = False) -> list[bytes]:
    """Return the records of a shard: sources that replace their blocks, oldest first.

    Every second one may receive what others computed.
    """
    rng = np.random.default_rng(shard)
    base = np.uint64(shard) << np.uint64(61)
    universe = rng.integers(0, 1 << 61, UNIVERSE, dtype=np.uint64) | base
    held: list[list[int]] = [[] for _ in range(layout.sources)]
    stored = [0] * layout.sources
    encode = msgspec.msgpack.Encoder().encode
    now = time.time() - 300
    result = []
    for number in range(layout.records):
        at = now + number * 0.125
        sources = []
        begin = number % 8 * layout.at_once
        for source in range(begin, begin + layout.at_once):
            blocks = held[source]
            resident = set(blocks)
            is_full = len(blocks) >= layout.resident
            count = layout.changes // 2 if is_full else layout.at_first
            drawn = (rng.power(0.5, 2 * count) * UNIVERSE).astype(np.int64)
            fresh = [block for block in dict.fromkeys(drawn.tolist()) if block not in resident][:count]
            gone = blocks[: len(fresh)] if is_full else []
            held[source] = blocks[len(gone) :] + fresh
            receives = receive and source % 2 == 1
            changes = _changed(universe, gone, fresh, at, stored[source])
            if receives:
                ends = [fresh[min(place | TOGETHER - 1, len(fresh) - 1)] for place in range(len(fresh))]
                changes.ends = universe[ends].astype(">u8").tobytes()
            stored[source] += SIZE * len(fresh)
            sources.append(
                SourceChanges(
                    f"r{source}", "m", "m/x/default", 0, 1, "complete", [changes], receives=receives
                )
            )
        result.append(encode(ResidencyRecord(number % 8, shard, number, sources, 8, at, 0.0)))
    return result


def _changed(
    universe: npt.NDArray[np.uint64], gone: list[int], fresh: list[int], at: float, stored: int
) -> ResidencyChanges:
    order = np.array(gone + fresh)
    kinds = np.array([EVICTED] * len(gone) + [FILLED] * len(fresh), np.uint8)
    before = np.cumsum(kinds == FILLED) * SIZE - (kinds == FILLED) * SIZE
    chains = np.array(fresh) // CHAIN * CHAIN
    return ResidencyChanges(
        "gpu",
        0,
        universe[order].astype(">u8").tobytes(),
        kinds.tobytes(),
        np.full(len(order), at).astype("<f8").tobytes(),
        np.full(len(order), SIZE, "<u4").tobytes(),
        before.astype("<u4").tobytes(),
        stored,
        roots=universe[chains].astype(">u8").tobytes(),
        depths=(np.array(fresh) - chains + 1).astype("<u2").tobytes(),
    )


async def _produce(bootstrap: str, topic: str, records: list[list[bytes]], rounds: range) -> None:
    producer = AIOKafkaProducer(bootstrap_servers=bootstrap, linger_ms=5, max_request_size=8 << 20)
    async with producer:
        for shard, each in enumerate(records):
            for number in rounds:
                await producer.send(topic, each[number], partition=shard)
        await producer.flush()


def _changes(value: bytes) -> int:
    record = msgspec.msgpack.decode(value, type=ResidencyRecord)
    return sum(len(part.kinds) for source in record.sources for part in source.changes)


def _applied(records: list[bytes], *, rate: float = 1.0) -> tuple[FleetState, int, float]:
    """Apply records of one shard, with a cut for all sources; return (state, changes, CPU seconds)."""
    state = FleetState(0, Fleet(sample_rate=rate), carry_seconds=0.0)
    decoded = [msgspec.msgpack.decode(value, type=ResidencyRecord) for value in records]
    for offset, record in enumerate(decoded[:8]):
        state.apply(offset, record)
    state.cut(0.0)
    began = time.process_time()
    for offset, record in enumerate(decoded[8:], 8):
        state.apply(offset, record)
        if offset % 8 == 7:
            state.cut(0.0)
    seconds = time.process_time() - began
    return state, sum(map(_changes, records[8:])), seconds


def _alone(figures: Figures, layout: Layout, records: list[bytes], *, rate: float) -> float:
    """Measure the pure state; return the CPU seconds."""
    state, changes, used = _applied(records, rate=rate)
    name = f"{layout.name} alone, one block in {round(1 / rate)}"
    figures.add(f"{name}: changes", changes / used, "changes/s/core")
    index = state.index
    figures.add(
        f"{name}: memory", (index.blocks.nbytes + index.pairs.nbytes + index.losses.nbytes) / 1e6, "MB"
    )
    for what, table, entries in (
        ("distinct block", state.index.blocks, USED_BLOCKS),
        ("owner or loser of a block", state.index.pairs, USED_PAIRS),
        ("loss remembered", state.index.losses, LOSSES),
    ):
        count = int(state.index.clock.counters[entries])
        figures.add(f"{name}: {what}, number", count, "")
        figures.add(f"{name}: {what}, each", table.nbytes / count, "B")
    return used


def run(figures: Figures, bootstrap: str, store_url: str) -> None:
    """Measure; needs an empty broker and store."""
    warm_up()
    for layout in (LARGE, SMALL):
        _run(figures, layout, bootstrap, store_url)


def _run(figures: Figures, layout: Layout, bootstrap: str, store_url: str) -> None:
    settings = Settings(
        kafka=Kafka(bootstrap_servers=bootstrap, topic_prefix=layout.short, group=layout.short),
        clickhouse=ClickHouse(url=store_url, database=layout.short.replace("-", "_")),
    )
    asyncio.run(topics.apply(settings))
    migrations.apply(settings)
    records = [records_of(shard, layout) for shard in range(SHARDS)]
    every, sample = (_alone(figures, layout, records[0], rate=rate) for rate in (1.0, 1 / 16))
    figures.add(f"{layout.name} alone: CPU of one block in 16, of that of all", sample / every, "")
    _, _, receiving = _applied(records_of(0, layout, receive=True))
    figures.add(f"{layout.name} alone: CPU where every second source receives", receiving / every, "")
    topic = f"{layout.short}.residency.v1"
    environment = {
        **os.environ,
        "KVLENS_KAFKA__BOOTSTRAP_SERVERS": bootstrap,
        "KVLENS_KAFKA__TOPIC_PREFIX": settings.kafka.topic_prefix,
        "KVLENS_KAFKA__GROUP": settings.kafka.group,
        "KVLENS_CLICKHOUSE__URL": store_url,
        "KVLENS_CLICKHOUSE__DATABASE": settings.clickhouse.database,
        "KVLENS_WORKER__AGENTS": "fleet",
    }
    with launched(["work"], environment) as worker:
        time.sleep(10)
        start_up = cpu_seconds(worker.pid)
    # Produced before, not beside: the cores' speed would be shared.
    asyncio.run(_produce(bootstrap, topic, records, range(layout.records)))
    total = sum(_changes(value) for each in records for value in each)
    with launched(["work"], environment) as worker:
        began = time.monotonic()
        while True:
            done, end = asyncio.run(committed(bootstrap, topic, f"{layout.short}.fleet", SHARDS))
            if done >= end > 0:
                break
            if worker.poll() is not None or time.monotonic() - began > 300:
                raise SystemExit(f"the worker did not finish: {done} of {end} offsets")
            time.sleep(0.5)
        used = cpu_seconds(worker.pid) - start_up
    figures.add(
        f"{layout.name}: changes of residency through Faust, Kafka to rows", total / used, "changes/s/core"
    )
