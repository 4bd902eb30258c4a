"""The conditions under which a trace is played."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import product

from pipeline.errors import PipelineError
from pipeline.simulator.traffic.routing import Routing
from pipeline.traces.trace import Trace


@dataclass(frozen=True, slots=True)
class Conditions:
    """A number of replicas, each with a cache of `capacity` blocks (None: endless)."""

    replicas: int
    capacity: int | None
    routing: Routing

    def same_traffic(self, other: Conditions) -> bool:
        """Return whether every replica gets the requests that it gets under the other conditions."""
        return self.replicas == other.replicas and (self.replicas == 1 or self.routing == other.routing)


class CapacityTooSmall(PipelineError):
    """A request of the trace does not fit into a cache: no engine would have admitted it."""

    capacity: int
    longest: int
    block_size: int

    def __str__(self) -> str:
        return (
            f"a capacity of {self.capacity:,} blocks of {self.block_size} tokens does not hold the trace's "
            f"longest request; give at least {self.longest:,} blocks ({self.longest * self.block_size}t)"
        )


def combined(
    replicas: Iterable[int],
    capacities: Iterable[int | None],
    routings: Iterable[Routing],
    trace: Trace,
) -> list[Conditions]:
    """Return every combination, the first values first. Raises CapacityTooSmall."""
    longest = max((len(request.hash_ids) for request in trace.requests), default=0)
    every = [Conditions(*values) for values in product(replicas, capacities, routings)]
    for each in every:
        if each.capacity is not None and each.capacity < longest:
            raise CapacityTooSmall(each.capacity, longest, trace.block_size)
    return every
