"""Traffic over replicas with caches, and what may be wrong with them: recount and agents both play it."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from pipeline.traces.trace import TraceRequest

BLOCK = 512
"""Tokens of a block."""
Routing = Literal["round-robin", "sticky", "follow"]
CROWDED = 1.25
"""A replica with so many times the mean of the requests gets none that another one could take."""


@dataclass(frozen=True)
class Scenario:
    """A fleet under a request trace; capacities are in blocks, one for each replica."""

    requests: Sequence[TraceRequest]
    capacities: tuple[int, ...]
    routing: Routing = "round-robin"
    restarts: tuple[tuple[float, int], ...] = ()
    """(seconds, replica): it begins again with an empty cache before the next request."""
    seeds: Mapping[int, str] = field(default_factory=dict)
    """Replicas that hash with a seed of their own."""
    lost: tuple[int, int, int] | None = None
    """(replica, first, count): batches of it that never come."""
    pinned: Mapping[int, int] = field(default_factory=dict)
    """First hash id of a request -> the replica that gets it."""
    prompts: Mapping[int, int] = field(default_factory=dict)
    """First hash id of a request -> blocks of its system prompt, if not SYSTEM_BLOCKS."""
    tier: int = 0
    """Blocks of each replica's CPU tier."""


class Router:
    """Chooses the replica of each request; knows how many each one got, and is told what each one holds."""

    def __init__(self, scenario: Scenario) -> None:
        self._scenario = scenario
        self._given = [0] * len(scenario.capacities)
        self._turn = 0

    def choose(self, request: TraceRequest, held: Sequence[int]) -> int:
        """`held`: blocks of the request's prefix that each replica holds."""
        number = self._chosen(request, held)
        self._given[number] += 1
        return number

    def _chosen(self, request: TraceRequest, held: Sequence[int]) -> int:
        scenario, given = self._scenario, self._given
        if request.hash_ids[0] in scenario.pinned:
            return scenario.pinned[request.hash_ids[0]]
        if scenario.routing == "sticky":
            # Where conversations part: after the system prompt.
            ids = request.hash_ids
            return ids[min(scenario.prompts.get(ids[0], SYSTEM_BLOCKS), len(ids) - 1)] % len(given)
        if scenario.routing == "round-robin":
            self._turn += 1
            return (self._turn - 1) % len(given)
        room = CROWDED * (sum(given) + len(given)) / len(given)
        able = [number for number in range(len(given)) if given[number] < room]
        return min(able, key=lambda number: (-held[number], given[number], number))


SYSTEM_BLOCKS = 8
"""Of a system prompt, in the traffic made here."""


def conversations(
    seed: int, seconds: float, rate: float = 1.0, *, prompts: int = 6, turns: float = 5.0, first: int = 0
) -> list[TraceRequest]:
    """Return requests of conversations under a few system prompts, each turn with all before it."""
    rng = random.Random(seed)
    number = first + 1000 * prompts
    requests: list[TraceRequest] = []
    at = 0.0
    while at < seconds:
        at += rng.expovariate(rate / turns)
        prompt = min(prompts - 1, int(rng.expovariate(0.7)))
        ids = [first + 1000 * prompt + block for block in range(SYSTEM_BLOCKS)]
        turn = at
        for _ in range(1 + int(rng.expovariate(1 / (turns - 0.5)))):
            grown = rng.randint(1, 4)
            ids += range(number, number + grown)
            number += grown
            if turn < seconds:
                requests.append(TraceRequest(turn, BLOCK * len(ids), tuple(ids)))
            turn += rng.expovariate(1 / 40.0)
    # No two at one time: agents may take replicas in another order then.
    return [
        TraceRequest(request.seconds + index * 1e-6, request.input_length, request.hash_ids)
        for index, request in enumerate(sorted(requests, key=lambda each: each.seconds))
    ]


def one_prompt(
    seed: int, begins: float, ends: float, rate: float, blocks: int, first: int
) -> list[TraceRequest]:
    """Return single requests that all begin with one long prompt and go on differently."""
    rng = random.Random(seed)
    requests, at, number = [], begins, first + blocks
    while (at := at + rng.expovariate(rate)) < ends:
        ids = (*range(first, first + blocks), number)
        number += 1
        requests.append(TraceRequest(at, BLOCK * len(ids), ids))
    return requests
