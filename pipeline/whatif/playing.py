"""Plays a trace under given conditions; the fleet agent follows what that changes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from pipeline.simulator.traffic.trace import Served, TraceCounters, TraceReplica, hit_rates, routed
from pipeline.traces.trace import HashId, Trace
from pipeline.whatif.conditions import Conditions
from pipeline.whatif.potential import FleetFollower, Potential
from schemas.residency import EVICTED, FILLED, ResidencyChanges, ResidencyRecord, SourceChanges

_REQUESTS_PER_RECORD = 256
_MEDIUM, _GROUP = "gpu", 0
_MODEL, _DOMAIN = "trace", "trace"


@dataclass(frozen=True, slots=True)
class Played:
    """The result of playing a trace."""

    conditions: Conditions
    block_size: int
    counters: tuple[TraceCounters, ...]
    """Of each replica."""
    potential: Potential

    @property
    def hit_rates(self) -> tuple[float, float]:
        """Hits per lookup, in blocks and in tokens, 0 to 1."""
        return hit_rates(self.counters)

    @property
    def queried_blocks(self) -> int:
        return sum(each.query_blocks for each in self.counters)

    @property
    def hit_blocks(self) -> int:
        return sum(each.hit_blocks for each in self.counters)


def play(trace: Trace, conditions: Conditions) -> Played:
    """Play the requests in their order."""
    replicas = [TraceReplica(trace.block_size, conditions.capacity) for _ in range(conditions.replicas)]
    fleet = FleetFollower()
    sources: list[SourceChanges] = []
    for changes in _changes(trace, conditions, replicas):
        sources.append(changes)
        if len(sources) == _REQUESTS_PER_RECORD:
            fleet.add(ResidencyRecord(0, 0, 0, sources))
            sources = []
    fleet.add(ResidencyRecord(0, 0, 0, sources))
    counters = tuple(replica.counters for replica in replicas)
    return Played(conditions, trace.block_size, counters, fleet.potential())


def _changes(trace: Trace, conditions: Conditions, replicas: list[TraceReplica]) -> Iterator[SourceChanges]:
    """Yield the changes of each request that changed anything."""
    numbers: dict[HashId, int] = {}
    """Hash ids numbered by first appearance: a trace's ids may be of any size, or texts."""
    for number, request in routed(trace.requests, conditions.replicas, conditions.routing):
        replica = replicas[number]
        stored_before = replica.counters.stored_blocks * trace.block_size
        served = replica.run(request)
        if served.missed:
            changes = _packed(served, stored_before, numbers, trace.block_size)
            yield SourceChanges(f"replica-{number}", _MODEL, _DOMAIN, 0, 1, "complete", [changes])


def _packed(
    served: Served, stored_before: int, numbers: dict[HashId, int], block_size: int
) -> ResidencyChanges:
    """Return the evictions, then the fills; a request that misses nothing evicts nothing.

    All are of one time: no cause depends on it, and what a trace has may be in a unit that was only guessed.
    """
    gone, come = len(served.evicted), len(served.missed)
    ids = (*served.evicted, *served.missed)
    hashes = np.array([numbers.setdefault(each, len(numbers)) for each in ids], ">u8")
    stored = np.zeros(gone + come, "<u4")
    stored[gone:] = np.arange(come) * block_size
    return ResidencyChanges(
        _MEDIUM,
        _GROUP,
        hashes.tobytes(),
        bytes([EVICTED]) * gone + bytes([FILLED]) * come,
        np.zeros(gone + come, "<f8").tobytes(),
        np.full(gone + come, block_size, "<u4").tobytes(),
        stored.tobytes(),
        stored_before,
    )
