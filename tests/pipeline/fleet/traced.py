"""A trace as what the agents read: the events of simulated replicas, and their changes of residency."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import msgspec

from pipeline.local.simulator.events import Removed
from pipeline.local.simulator.routing import Routing
from pipeline.local.simulator.trace import TraceReplica, TraceRequest, routed
from pipeline.residency.partition import PartitionState
from schemas.events import Batch, EventsRecord, Opened, Stored
from schemas.events import Removed as RemovedEvent
from schemas.residency import ResidencyRecord
from schemas.settings import Worker

START = 1_700_000_000.0


def events(
    requests: Iterable[TraceRequest], replicas: int, budget: int | None, routing: Routing = "round-robin"
) -> Iterator[EventsRecord]:
    """Yield a record for each request, as a connector would publish it."""
    fleet = [TraceReplica(budget) for _ in range(replicas)]
    seqs = [0] * replicas
    for number, request in routed(requests, replicas, routing):
        at = START + request.seconds
        found = [
            RemovedEvent(_packed(event.digests))
            if isinstance(event, Removed)
            else Stored(_packed(event.digests), 512, 512 * len(event.digests))
            for event in fleet[number].serve(request)
        ]
        opened = [Batch(None, at, at, [Opened(first_seq=0, complete=True)])] if not seqs[number] else []
        batch = Batch(seqs[number], at, at, list(found), engine_events=len(found))
        seqs[number] += 1
        yield EventsRecord(f"r{number}", "m", "m/x/default", 0, 1, [*opened, batch], batch.seq, batch.seq)


def residency(records: Iterable[EventsRecord]) -> list[ResidencyRecord]:
    """Return what the replica agent tells of them, a checkpoint every fifty records."""
    state = PartitionState(0, Worker(max_clock_behind_seconds=1e12), shards=1)
    told: list[ResidencyRecord] = []
    for offset, record in enumerate(records):
        state.apply(offset, record)
        if offset % 50 == 49:
            told += _taken(state)
    return [*told, *_taken(state)]


def _packed(digests: tuple[bytes, ...]) -> bytes:
    return b"".join(digest[-8:] for digest in digests)


def _taken(state: PartitionState) -> Iterator[ResidencyRecord]:
    for _, _, value in state.cut(START).residency:
        yield msgspec.msgpack.decode(value, type=ResidencyRecord)
