"""Plays a request trace in Mooncake's format over replicas with prefix caches, without any clock.

A line of the trace is `{"timestamp": ms, "input_length": tokens, "output_length": tokens, "hash_ids": []}`;
lines may come in any order, and requests of equal times count in that of the file.
Every hash id is one full block of 512 tokens and stands for its whole prefix. A request looks up its longest
cached prefix, stores the rest, and ends before the next of its replica begins; the output stores nothing.
"""

from __future__ import annotations

import hashlib
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from operator import attrgetter
from pathlib import Path
from typing import Annotated

import msgspec
from msgspec import Meta

from pipeline.errors import PipelineError
from pipeline.simulator.engine.block_pool import BlockPool
from pipeline.simulator.engine.events import Event, Removed, Stored
from pipeline.simulator.traffic.routing import Router, Routing
from pipeline.unzipped import unzipped

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


class TraceError(PipelineError):
    """A line of a trace file cannot be used."""

    def __init__(self, path: Path, line: int, reason: str) -> None:
        super().__init__(f"{path}, line {line}: {reason}")
        self.path = path
        self.line = line


class _Line(msgspec.Struct):
    timestamp: Annotated[float, Meta(ge=0, le=1e15)]
    input_length: Annotated[int, Meta(ge=0, le=1 << 40)]
    hash_ids: tuple[int, ...]


def read_trace(path: Path) -> list[TraceRequest]:
    """Read a trace, plain or gzip, in order of time.

    Raises TraceError for a bad line, OSError for a bad file.
    """
    decode = msgspec.json.Decoder(_Line).decode
    requests = []
    line = 0
    try:
        with unzipped(path) as lines:
            for line, text in enumerate(lines, 1):  # noqa: B007 (the errors name it)
                if not text.isspace():
                    fields = decode(text)
                    requests.append(
                        TraceRequest(fields.timestamp / 1000, fields.input_length, fields.hash_ids)
                    )
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise TraceError(path, line, f"not a trace request: {error}") from error
    except (EOFError, zlib.error) as error:
        raise TraceError(path, line + 1, f"the file is damaged: {error}") from error
    requests.sort(key=attrgetter("seconds"))
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


@dataclass(frozen=True, slots=True)
class Served:
    """What a request did to a cache, in hash ids."""

    hits: int
    missed: tuple[int, ...]
    """Stored, in chain order."""
    evicted: list[int]
    """Before that, in order."""


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
            tokens = _BLOCK_TOKENS * len(served.missed)
            events.append(Stored(tuple(map(self.digest, served.missed)), parent, tokens, TRACE_BLOCK_SIZE))
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

    Sticky routing goes by the second hash id, where the conversations diverge: in Mooncake's traces the first
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
