"""Plays a request trace in Mooncake's format over replicas with prefix caches, without any clock.

A line of the trace is `{"timestamp": ms, "input_length": tokens, "output_length": tokens, "hash_ids": []}`.
Every hash id is one full block of 512 tokens and stands for its whole prefix. A request looks up its longest
cached prefix, stores the rest, and ends before the next of its replica begins; the output stores nothing.
"""

from __future__ import annotations

import gzip
import hashlib
import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from pipeline.local.simulator.block_pool import BlockPool
from pipeline.local.simulator.events import Event, Removed, Stored
from pipeline.local.simulator.routing import Router, Routing

TRACE_BLOCK_SIZE = 512
"""Tokens of one hash id."""

# An engine sends token ids, whatever they are; many of these are small, as a tokenizer's frequent ones.
_BLOCK_TOKENS = tuple(int(151_936 ** (i * 0.618 % 1)) for i in range(TRACE_BLOCK_SIZE))


@dataclass(frozen=True, slots=True)
class TraceRequest:
    """One line of a trace; `seconds` since its beginning."""

    seconds: float
    input_length: int
    hash_ids: tuple[int, ...]


class TraceError(Exception):
    """A line of a trace file cannot be used."""

    def __init__(self, path: Path, line: int, reason: str) -> None:
        super().__init__(f"{path}, line {line}: {reason}")
        self.path = path
        self.line = line


def read_trace(path: Path) -> list[TraceRequest]:
    """Read a trace, plain or gzip. Raises TraceError for a bad line, OSError for a bad file."""
    opened = gzip.open if path.suffix == ".gz" else open
    requests = []
    with opened(path, "rt", encoding="utf-8") as lines:
        for number, line in enumerate(lines, 1):
            try:
                fields = json.loads(line)
                requests.append(
                    TraceRequest(
                        fields["timestamp"] / 1000, int(fields["input_length"]), tuple(fields["hash_ids"])
                    )
                )
            except (ValueError, KeyError, TypeError) as error:
                raise TraceError(path, number, f"not a trace request ({error!r})") from error
    return requests


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


class TraceReplica:
    """A prefix cache of `budget` blocks, None for endless, with vLLM's order of eviction."""

    def __init__(self, budget: int | None = None, hash_seed: str = "0") -> None:
        self.budget = budget
        self.counters = TraceCounters()
        self.pool: BlockPool[int] = BlockPool(None if budget is None else budget + 1)
        self._hash_seed = hash_seed

    def digest(self, hash_id: int) -> bytes:
        """Return the digest of a hash id."""
        return hashlib.sha256(f"{self._hash_seed}/trace/{hash_id}".encode()).digest()

    def serve(self, request: TraceRequest) -> list[Event]:
        """Run one request to its end and return its events: evictions, then the store.

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
        events: list[Event] = []
        if evicted:
            events.append(Removed(tuple(map(self.digest, evicted))))
        if missed:
            parent = self.digest(ids[len(held) - 1]) if held else None
            tokens = _BLOCK_TOKENS * len(missed)
            events.append(Stored(tuple(map(self.digest, missed)), parent, tokens, TRACE_BLOCK_SIZE))
        return events

    def _held(self, ids: tuple[int, ...]) -> list[int]:
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
        counters.hit_tokens += min(hits * TRACE_BLOCK_SIZE, request.input_length)
        counters.stored_blocks += len(request.hash_ids) - hits
        counters.evicted_blocks += evicted


def routed(
    requests: Iterable[TraceRequest], replicas: int, routing: Routing, seed: int = 0
) -> Iterator[tuple[int, TraceRequest]]:
    """Yield (replica, request) in order of arrival.

    Sticky routing goes by the second hash id, where the conversations part: in Mooncake's traces the first
    one is the system prompt of all.
    """
    router = Router(routing, replicas, seed)
    for request in requests:
        yield router.choose(str(request.hash_ids[:2][-1:])), request


def hit_rates(counters: Iterable[TraceCounters]) -> tuple[float, float]:
    """Return the hit rates in blocks and in tokens over all replicas, 0 to 1: ratios of sums."""
    every = tuple(counters)
    blocks = sum(each.query_blocks for each in every)
    tokens = sum(each.query_tokens for each in every)
    return (
        sum(each.hit_blocks for each in every) / blocks if blocks else 0.0,
        sum(each.hit_tokens for each in every) / tokens if tokens else 0.0,
    )
