"""A trace as what the agents read: the events of simulated replicas, and their changes of residency."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

import msgspec

from pipeline.residency.partition import PartitionState
from pipeline.simulator.traffic.routing import Routing, role_of
from pipeline.simulator.traffic.trace import TraceReplica, routed
from pipeline.traces.trace import TraceRequest
from schemas.events import Batch, Event, EventsRecord, Opened, Removed, Stored
from schemas.residency import ResidencyRecord
from schemas.settings import Worker

START = 1_700_000_000.0


def events(
    requests: Iterable[TraceRequest],
    replicas: int,
    budget: int | None,
    routing: Routing = "round-robin",
    *,
    hash_seeds: Mapping[int, str] | None = None,
    prefilling: int = 0,
) -> Iterator[EventsRecord]:
    """Yield a record for each request, as a connector would publish it.

    Replicas in `hash_seeds` hash with a seed of their own; the first `prefilling` compute prompts for the
    others.
    """
    seeds = hash_seeds or {}
    fleet = [TraceReplica(512, budget, seeds.get(number, "0")) for number in range(replicas)]
    seqs = [0] * replicas
    for number, request in routed(requests, replicas, routing, prefilling=prefilling):
        at = START + request.seconds
        found = served(fleet[number], request)
        opened = [Batch(None, at, at, [Opened(first_seq=0, complete=True)])] if not seqs[number] else []
        batch = Batch(seqs[number], at, at, found, engine_events=len(found))
        seqs[number] += 1
        yield EventsRecord(
            f"r{number}",
            "m",
            "m/x/default",
            0,
            1,
            [*opened, batch],
            batch.seq,
            batch.seq,
            role=role_of(number, prefilling) or "",
        )


def served(replica: TraceReplica, request: TraceRequest) -> list[Event]:
    """Run a request and return its events, as a connector normalises them."""
    done = replica.run(request)
    found: list[Event] = []
    if done.evicted:
        found.append(Removed(_packed(replica, done.evicted)))
    if done.missed:
        parent = _packed(replica, request.hash_ids[done.hits - 1 : done.hits]) if done.hits else None
        found.append(Stored(_packed(replica, done.missed), 512, 512 * len(done.missed), parent))
    return found


def residency(records: Iterable[EventsRecord]) -> list[ResidencyRecord]:
    """Return what the replica agent tells of them, a checkpoint every fifty records."""
    state = PartitionState(0, Worker(max_clock_behind_seconds=1e12), shards=1)
    told: list[ResidencyRecord] = []
    for offset, record in enumerate(records):
        state.apply(offset, record)
        if offset % 50 == 49:
            told += _taken(state)
    return [*told, *_taken(state)]


def _packed(replica: TraceReplica, hash_ids: Iterable[int]) -> bytes:
    return b"".join(replica.digest(hash_id)[-8:] for hash_id in hash_ids)


def _taken(state: PartitionState) -> Iterator[ResidencyRecord]:
    for _, _, value in state.cut(START).residency:
        yield msgspec.msgpack.decode(value, type=ResidencyRecord)
