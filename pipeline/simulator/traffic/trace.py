"""Plays a request trace over replicas with prefix caches, without any clock.

Every hash id is one block and names its whole prefix. A request looks up its longest cached prefix, stores
the rest, and ends before the replica's next request begins; the output stores nothing.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cache

from pipeline.simulator.engine.block_pool import BlockPool
from pipeline.simulator.engine.events import Event, Removed, Stored
from pipeline.simulator.traffic.routing import Router, Routing
from pipeline.simulator.traffic.workload import VOCABULARY
from pipeline.traces.trace import HashId, TraceRequest

HANDED_OVER = 0.05
"""Seconds from a request to the copy of its prompt on a decode replica, as real engines announce it."""


@cache
def _block_tokens(block_size: int) -> tuple[int, ...]:
    """Return the token ids that every block gets: any will do, and as in real traffic many are small."""
    return tuple(int(VOCABULARY ** (i * 0.618 % 1)) for i in range(block_size))


@dataclass(slots=True)
class TraceCounters:
    """What a replica knows about itself."""

    requests: int = 0
    query_blocks: int = 0
    hit_blocks: int = 0
    query_tokens: int = 0
    hit_tokens: int = 0
    """Capped at the input length: a request's last block may be shorter than its hash id."""
    stored_blocks: int = 0
    evicted_blocks: int = 0


@dataclass(frozen=True, slots=True)
class Served:
    """What a request did to a cache, in hash ids."""

    hits: int
    missed: tuple[HashId, ...]
    """Stored, in chain order."""
    evicted: list[HashId]
    """Evicted before that, in order."""


class TraceReplica:
    """A prefix cache of `budget` blocks, None for endless, with vLLM's order of eviction."""

    def __init__(self, block_size: int, budget: int | None = None, hash_seed: str = "0") -> None:
        self.block_size = block_size
        self.budget = budget
        self.counters = TraceCounters()
        self.pool: BlockPool[HashId] = BlockPool(None if budget is None else budget + 1)
        self._hash_seed = hash_seed

    def digest(self, hash_id: HashId) -> bytes:
        """Return the digest of a hash id."""
        return hashlib.sha256(f"{self._hash_seed}/trace/{hash_id}".encode()).digest()

    def run(self, request: TraceRequest) -> Served:
        """Run one request to its end.

        Raises PoolExhaustedError when the request is longer than the budget.
        """
        ids = request.hash_ids
        held = self._held(ids)
        self.pool.touch(held)
        taken, evicted = self.pool.allocate(len(ids) - len(held))
        missed = ids[len(held) :]
        for block, hash_id in zip(taken, missed, strict=True):
            self.pool.cache(block, hash_id)
        self.pool.release(reversed(held + taken))
        self._count(request, len(held), len(evicted))
        return Served(len(held), missed, evicted)

    def serve(self, request: TraceRequest) -> list[Event]:
        """Run one request to its end and return its events: evictions, then the store.

        Raises PoolExhaustedError when the request is longer than the budget.
        """
        served = self.run(request)
        events: list[Event] = []
        if served.evicted:
            events.append(Removed(tuple(map(self.digest, served.evicted))))
        if served.missed:
            parent = self.digest(request.hash_ids[served.hits - 1]) if served.hits else None
            tokens = _block_tokens(self.block_size) * len(served.missed)
            events.append(Stored(tuple(map(self.digest, served.missed)), parent, tokens, self.block_size))
        return events

    def _held(self, ids: tuple[HashId, ...]) -> list[int]:
        """Return the blocks of the longest cached prefix."""
        held: list[int] = []
        for hash_id in ids:
            block = self.pool.lookup(hash_id)
            if block is None:
                break
            held.append(block)
        return held

    def _count(self, request: TraceRequest, hits: int, evicted: int) -> None:
        counters = self.counters
        counters.requests += 1
        counters.query_blocks += len(request.hash_ids)
        counters.hit_blocks += hits
        counters.query_tokens += request.input_length
        counters.hit_tokens += min(hits * self.block_size, request.input_length)
        counters.stored_blocks += len(request.hash_ids) - hits
        counters.evicted_blocks += evicted


def routed(
    requests: Iterable[TraceRequest], replicas: int, routing: Routing, seed: int = 0, prefilling: int = 0
) -> Iterator[tuple[int, TraceRequest]]:
    """Yield (replica, request) in order of arrival; sticky routing goes by the session.

    Where the first `prefilling` replicas compute prompts for the others, each request is yielded twice: for
    one of them, and, a little later, for one that pulls the prompt.
    """
    to_compute = Router(routing, prefilling or replicas, seed)
    to_decode = Router(routing, replicas - prefilling, seed) if prefilling else None
    for request in requests:
        yield to_compute.choose(request.session), request
        if to_decode is not None:
            pulled = replace(request, seconds=request.seconds + HANDED_OVER)
            yield prefilling + to_decode.choose(request.session), pulled


def hit_rates(counters: Iterable[TraceCounters]) -> tuple[float, float]:
    """Return the hit rates in blocks and in tokens over all replicas, 0 to 1: ratios of sums."""
    every = tuple(counters)
    blocks = sum(each.query_blocks for each in every)
    tokens = sum(each.query_tokens for each in every)
    return (
        sum(each.hit_blocks for each in every) / blocks if blocks else 0.0,
        sum(each.hit_tokens for each in every) / tokens if tokens else 0.0,
    )
