"""A scenario as the tables have it: the simulator's caches, both agents, their rows in a store."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta, timezone

import msgspec

from pipeline.fleet.state import FleetState
from pipeline.residency.partition import PartitionState
from pipeline.simulator.engine.offload import CpuTier
from pipeline.simulator.traffic.trace import TraceReplica
from pipeline.traces.trace import TraceRequest
from schemas.events import (
    Batch,
    Closed,
    EngineCounters,
    Event,
    EventsRecord,
    Gap,
    Opened,
    Removed,
    Stored,
)
from schemas.residency import ResidencyRecord
from schemas.rows import Row
from schemas.setting_rows import ModelRow
from schemas.settings import Fleet, Worker
from tests.support.advice.scenario import BLOCK, Router, Scenario

MODEL = "m"
DOMAIN = "m/x/default"
BYTES_PER_TOKEN = 1024
BEGINS = datetime.now(timezone.utc).replace(minute=0, second=0, microsecond=0) - timedelta(hours=3)
"""Time 0 of every scenario; the tables keep a week."""
_START = BEGINS.timestamp()
_AT_ONCE = 10


def name(replica: int) -> str:
    """Return the id of a replica."""
    return f"r{replica}"


def rows_of(scenario: Scenario) -> list[Row]:
    """Return all rows that the agents write of it."""
    replica_agent = PartitionState(0, Worker(max_clock_behind_seconds=1e12), shards=1)
    # A router that keeps prompts apart makes replicas look as if they hashed differently (docs/figures.md).
    fleet_agent = FleetState(0, Fleet(compare_after=64 if scenario.seeds else 0), carry_seconds=3600.0)
    rows: list[Row] = [ModelRow(MODEL, BYTES_PER_TOKEN, 1)]

    def cut() -> None:
        part = replica_agent.cut(_START)
        rows.extend(part.rows)
        for _, _, value in part.residency:
            record = msgspec.msgpack.decode(value, type=ResidencyRecord)
            fleet_agent.apply(fleet_agent.next_offset, record)

    for offset, record in enumerate(records(scenario)):
        replica_agent.apply(offset, record)
        if offset % _AT_ONCE == _AT_ONCE - 1:
            cut()
            rows.extend(fleet_agent.cut(_START).rows)
    cut()
    rows.extend(fleet_agent.cut(_START).rows)
    return rows


def records(scenario: Scenario) -> Iterator[EventsRecord]:
    """Yield what connectors would publish: a record for each request and each end of a life."""
    fleet = [_Replica(scenario, number) for number in range(len(scenario.capacities))]
    router = Router(scenario)
    to_come = sorted(scenario.restarts)
    for request in scenario.requests:
        while to_come and to_come[0][0] <= request.seconds:
            at, number = to_come.pop(0)
            yield from fleet[number].restart(_START + at)
        number = router.choose(request, [each.held(request) for each in fleet])
        yield fleet[number].serve(request)


class _Replica:
    """One source: the simulator's prefix cache, and the records of its stream."""

    def __init__(self, scenario: Scenario, number: int) -> None:
        self._number = number
        self._scenario = scenario
        self._seq = 0
        self._queried = self._hit = 0
        self._life = int(_START * 1e6)
        self._begin()

    def held(self, request: TraceRequest) -> int:
        held = 0
        for block in request.hash_ids:
            if self._cache.pool.lookup(block) is None:
                break
            held += 1
        return held

    def serve(self, request: TraceRequest) -> EventsRecord:
        at = _START + request.seconds
        served = self._cache.run(request)
        self._queried += BLOCK * len(request.hash_ids)
        self._hit += BLOCK * served.hits
        found: list[Event] = []
        if served.evicted:
            found.append(Removed(self._packed(served.evicted)))
        if served.missed:
            parent = self._packed(request.hash_ids[served.hits - 1 : served.hits]) if served.hits else None
            found.append(Stored(self._packed(served.missed), BLOCK, BLOCK * len(served.missed), parent))
        if self._scenario.tier:
            new, old = self._tier.store([self._cache.digest(block) for block in served.missed])
            if old:
                found.append(Removed(b"".join(each[-8:] for each in old), "cpu"))
            if new:
                found.append(
                    Stored(b"".join(each[-8:] for each in new), BLOCK, BLOCK * len(new), None, "cpu")
                )
        batches = []
        if not self._seq:
            batches.append(Batch(None, at, at, [Opened(first_seq=0, complete=True)]))
        if self._is_lost(self._seq):
            batches.append(Batch(None, at, at, [Gap(self._seq, self._seq, "replay_not_configured")]))
        else:
            batches.append(Batch(self._seq, at, at, found, engine_events=len(found)))
        counters = EngineCounters(
            self._queried, self._hit, None, None, self._scenario.capacities[self._number] + 1, BLOCK, 0.0
        )
        batches.append(Batch(None, at, at, [counters]))
        record = self._record(batches, self._seq)
        self._seq += 1
        return record

    def restart(self, at: float) -> Iterator[EventsRecord]:
        if self._seq:
            yield self._record([Batch(None, at, at, [Closed("restarted")])], None)
        self._life = int(at * 1e6)
        self._seq = 0
        self._queried = self._hit = 0
        self._begin()

    def _begin(self) -> None:
        scenario, number = self._scenario, self._number
        self._cache = TraceReplica(BLOCK, scenario.capacities[number], scenario.seeds.get(number, "0"))
        self._tier = CpuTier(scenario.tier)

    def _is_lost(self, seq: int) -> bool:
        if self._scenario.lost is None:
            return False
        number, first, count = self._scenario.lost
        return number == self._number and first <= seq < first + count

    def _record(self, batches: list[Batch], seq: int | None) -> EventsRecord:
        return EventsRecord(
            name(self._number), MODEL, DOMAIN, 0, self._life, batches, seq, seq, engine="vllm"
        )

    def _packed(self, blocks: list[int] | tuple[int, ...]) -> bytes:
        return b"".join(self._cache.digest(block)[-8:] for block in blocks)
