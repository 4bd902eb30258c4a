"""One engine rank: schedules requests step by step over a block pool, and reports what its cache did.

The order is that of vLLM V1's scheduler: running requests first, prompt blocks cached when they are
scheduled, chunked prefill under a token budget, preemption of the youngest, release at the end, tail first.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from connectors.process.errors import DataError
from pipeline.simulator.engine.block_pool import BlockPool
from pipeline.simulator.engine.events import Cleared, Event, Removed, Stored
from pipeline.simulator.engine.fine_blocks import FineBlocks
from pipeline.simulator.engine.offload import CpuTier
from pipeline.simulator.engine.settings import EngineSettings
from pipeline.simulator.traffic.requests import Request
from pipeline.simulator.wire.hashing import chain_digests, seed_digest

GroupKey = tuple[int, bytes]
"""(KV cache group, digest): vLLM caches per group."""


@dataclass(slots=True)
class Counters:
    """What the engine would count by itself; tokens unless said otherwise."""

    queries: int = 0
    hits: int = 0
    external_queries: int = 0
    external_hits: int = 0
    pulled: int = 0
    """Of the external hits: those that came from another engine."""
    computed: int = 0
    """Of prompts, counted when they have their first token."""
    generated: int = 0
    stored_blocks: int = 0
    duplicate_blocks: int = 0
    evicted_blocks: int = 0
    cleared_blocks: int = 0
    clears: int = 0
    finished_requests: int = 0
    prefill_steps: int = 0
    """Of finished requests: from the step that first schedules one to that of its first token, inclusive."""
    prefill_tokens: int = 0
    """Of finished requests: tokens of their prompts that no cache had."""
    preemptions: int = 0


class RequestTooLargeError(DataError):
    """A request can never fit the pool."""

    blocks: int
    usable: int
    line = "the request needs {blocks} blocks of a pool of {usable}"


@dataclass(slots=True, eq=False)
class _Sequence:
    """A request inside the engine."""

    request: Request
    tokens: tuple[int, ...]
    digests: tuple[bytes, ...]
    fine: tuple[bytes, ...]
    known: int
    """Tokens that exist so far: the prompt and what was generated."""
    computed: int = 0
    cached: int = 0
    """Blocks entered into the cache, or hit there, per group."""
    blocks: list[list[int]] = field(default_factory=list)
    scheduled: int = 0
    preempted: bool = False
    pulled: bool = False
    """Whether its prompt was pulled or is being pulled, which happens once."""
    admitted_at: int = 0
    """Step that scheduled it first."""
    prefill_steps: int = 0
    """0 until it has its first token."""
    prefill_tokens: int = 0


class Engine:
    """One DP rank of one engine; `submit` requests, then `step` until `busy` is false."""

    def __init__(self, settings: EngineSettings, *, clears_cpu: bool = False) -> None:
        """`clears_cpu`: a reset of the prefix cache empties the CPU tier as well."""
        self.settings = settings
        self._clears_cpu = clears_cpu
        self.counters = Counters()
        self.pool: BlockPool[GroupKey] = BlockPool(settings.num_blocks)
        self.cpu = CpuTier(settings.cpu_blocks)
        self.fine = FineBlocks()
        self._seed = seed_digest(settings.hash_seed)
        self._fine_seed = seed_digest(f"{settings.hash_seed}/fine")
        self._waiting: deque[_Sequence] = deque()
        self._running: list[_Sequence] = []
        self._pulling: deque[tuple[int, _Sequence]] = deque()
        """With the steps in which their prompts will have arrived."""
        self.finished: list[Request] = []
        """Requests that the last step finished."""
        self._events: list[Event] = []
        self._to_offload: list[Stored] = []
        self._steps = 0

    @property
    def busy(self) -> bool:
        """Whether a step would do anything."""
        return bool(self._running or self._waiting or self._pulling or self._to_offload)

    @property
    def usage(self) -> float:
        """Share of the usable blocks in use by requests, 0 to 1."""
        return self.pool.used / (self.settings.num_blocks - 1)

    def submit(self, request: Request) -> None:
        """Queue a request. Raises RequestTooLargeError when it could never run."""
        settings = self.settings
        tokens = request.prompt + request.output
        wanted = -(-len(tokens) // settings.block_size) * len(settings.groups)
        if wanted > settings.num_blocks - 1:
            raise RequestTooLargeError(wanted, settings.num_blocks - 1)
        extra = request.lora.name if request.lora else None
        fine: tuple[bytes, ...] = ()
        if settings.fine_block_size is not None:
            fine = chain_digests(self._fine_seed, tokens, settings.fine_block_size, extra)
        digests = chain_digests(self._seed, tokens, settings.block_size, extra)
        self._waiting.append(_Sequence(request, tokens, digests, fine, known=len(request.prompt)))

    def reset_prefix_cache(self) -> bool:
        """Empty the cache, refused while a request runs; the event comes with the next step's batch."""
        dropped = self.pool.clear()
        if dropped is None:
            return False
        self.fine.clear()
        if self._clears_cpu:
            self.cpu.clear()
            self._to_offload = []
        self.counters.cleared_blocks += dropped
        self.counters.clears += 1
        self._events.append(Cleared())
        return True

    def step(self) -> list[Event]:
        """Run one engine step and return its events in order: GPU first, then the CPU tier."""
        self.finished = []
        if not self.busy:
            return []
        self._steps += 1
        arriving, self._to_offload = self._to_offload, []
        preemptions = self.counters.preemptions
        budget = self._schedule_running(self.settings.step_tokens)
        if self.counters.preemptions == preemptions:
            self._run_pulled()
            self._admit(budget)
        self._offload(arriving)
        self._advance()
        events, self._events = self._events, []
        return events

    def _schedule_running(self, budget: int) -> int:
        for sequence in tuple(self._running):
            sequence.scheduled = 0
            count = min(sequence.known - sequence.computed, budget)
            while sequence in self._running and not self._grow(sequence, count):
                self._preempt(self._running[-1])
            if sequence in self._running:
                budget -= count
        return budget

    def _grow(self, sequence: _Sequence, count: int) -> bool:
        """Give the sequence the blocks for `count` more tokens, and cache those that become full."""
        groups = len(self.settings.groups)
        end = sequence.computed + count
        missing = self._missing(sequence.blocks, end)
        if missing * groups > self.pool.free:
            return False
        for blocks in sequence.blocks:
            self._allocate(blocks, missing)
        self._cache(sequence, end)
        sequence.scheduled = count
        return True

    def _allocate(self, blocks: list[int], count: int) -> None:
        taken, evicted = self.pool.allocate(count)
        blocks.extend(taken)
        if not evicted:
            return
        self.counters.evicted_blocks += len(evicted)
        for group, digest in evicted:
            self._events.append(Removed((digest,), group=group))
            if self.settings.fine_block_size and group == 0 and (group, digest) not in self.pool:
                self.fine.uncover((digest,))

    def _cache(self, sequence: _Sequence, end: int) -> None:
        size = self.settings.block_size
        first, last = sequence.cached, end // size
        fine_runs = self._fine_runs(sequence, first, last, end)
        for group, kind in enumerate(self.settings.groups):
            if last > first:
                for block, digest in zip(
                    sequence.blocks[group][first:last], sequence.digests[first:last], strict=True
                ):
                    self.counters.duplicate_blocks += (group, digest) in self.pool
                    self.pool.cache(block, (group, digest))
                stored = self._stored(sequence, sequence.digests, first, last, size, group, kind)
                self.counters.stored_blocks += last - first
                if self.cpu.capacity:
                    self._to_offload.append(stored)
                self._events.append(stored)
            if group == 0:
                fine_size = self.settings.fine_block_size or size
                for start, stop in fine_runs:
                    self._events.append(
                        self._stored(sequence, sequence.fine, start, stop, fine_size, group, kind)
                    )
        sequence.cached = last

    def _fine_runs(self, sequence: _Sequence, first: int, last: int, end: int) -> list[tuple[int, int]]:
        """Announce the fine blocks up to token `end`, and bind those of new coarse blocks to these."""
        fine_size = self.settings.fine_block_size
        if fine_size is None:
            return []
        ratio = self.settings.block_size // fine_size
        start = first * ratio if last > first else max(first * ratio, sequence.computed // fine_size)
        runs = self.fine.announce(sequence.fine, start, end // fine_size)
        for i in range(first, last):
            if (0, sequence.digests[i]) not in self.pool:
                self.fine.cover(sequence.digests[i], sequence.fine[i * ratio : (i + 1) * ratio])
        return runs

    @staticmethod
    def _stored(
        sequence: _Sequence, chain: tuple[bytes, ...], first: int, last: int, size: int, group: int, kind: str
    ) -> Stored:
        lora = sequence.request.lora
        return Stored(
            chain[first:last],
            chain[first - 1] if first else None,
            sequence.tokens[first * size : last * size],
            size,
            group=group,
            spec_kind=kind,
            lora_id=lora.id if lora else None,
            lora_name=lora.name if lora else None,
            session=sequence.request.session,
        )

    def _preempt(self, sequence: _Sequence) -> None:
        self._running.remove(sequence)
        self._release(sequence)
        sequence.computed = sequence.cached = sequence.scheduled = 0
        sequence.preempted = True
        self.counters.preemptions += 1
        self._waiting.appendleft(sequence)

    def _release(self, sequence: _Sequence) -> None:
        for blocks in sequence.blocks:
            self.pool.release(reversed(blocks))
        sequence.blocks = []

    def _admit(self, budget: int) -> None:
        while self._waiting and budget > 0 and len(self._running) < self.settings.max_running:
            sequence = self._waiting[0]
            hits = self._hits(sequence)
            if self.settings.receives and not sequence.pulled:
                if not self._pull(sequence, hits):
                    return
                continue
            loaded = self._loadable(sequence, len(hits[0]))
            start = (len(hits[0]) + loaded) * self.settings.block_size
            count = min(sequence.known - start, budget)
            if not self._fits(hits, start + count):
                return
            self._begin(sequence, hits, loaded)
            sequence.computed = start
            self._running.append(sequence)
            if not sequence.preempted:
                sequence.admitted_at = self._steps
                sequence.prefill_tokens = sequence.known - start
            self._grow(sequence, count)
            budget -= count

    def _pull(self, sequence: _Sequence, hits: list[list[int]]) -> bool:
        """Allocate all blocks of a prompt; missing content arrives later. Return False if there is no room.

        Blocks are evicted now and stored once their content is there, as vLLM 0.33 does it
        (`WAITING_FOR_REMOTE_KVS`).
        """
        if not self._fits(hits, sequence.known):
            return False
        pulled = sequence.known - len(hits[0]) * self.settings.block_size
        self.counters.external_queries += pulled
        self.counters.external_hits += pulled
        self.counters.pulled += pulled
        self._begin(sequence, hits, 0)
        sequence.pulled = True
        sequence.admitted_at = self._steps
        missing = self._missing(hits, sequence.known)
        for blocks in sequence.blocks:
            self._allocate(blocks, missing)
        self._pulling.append((self._steps + self.settings.pull_steps, sequence))
        return True

    def _missing(self, blocks: list[list[int]], tokens: int) -> int:
        """Return how many blocks each group lacks for this many tokens."""
        return -(-tokens // self.settings.block_size) - len(blocks[0])

    def _fits(self, hits: list[list[int]], tokens: int) -> bool:
        """Return whether there is room for this many tokens, hits included."""
        taken = [block for blocks in hits for block in blocks]
        return self._missing(hits, tokens) * len(hits) <= self.pool.free - self.pool.idle(taken)

    def _begin(self, sequence: _Sequence, hits: list[list[int]], loaded: int) -> None:
        """Take the next waiting request, and give it the blocks that were hit."""
        self._waiting.popleft()
        self._count_query(sequence, len(hits[0]), loaded)
        self.pool.touch(block for blocks in hits for block in blocks)
        sequence.blocks = hits
        sequence.cached = len(hits[0])

    def _run_pulled(self) -> None:
        """Run the requests whose prompts have arrived; their last token is computed once more."""
        while self._pulling and self._pulling[0][0] <= self._steps:
            _, sequence = self._pulling.popleft()
            sequence.computed = sequence.known - 1
            self._cache(sequence, sequence.computed)
            self._running.append(sequence)
            self._grow(sequence, 1)

    def _hits(self, sequence: _Sequence) -> list[list[int]]:
        """Return the blocks of the longest prefix that all groups hold; one token is always computed."""
        hits: list[list[int]] = [[] for _ in self.settings.groups]
        for digest in sequence.digests[: (sequence.known - 1) // self.settings.block_size]:
            found = [self.pool.lookup((group, digest)) for group in range(len(hits))]
            for blocks, block in zip(hits, found, strict=True):
                if block is not None and None not in found:
                    blocks.append(block)
            if None in found:
                break
        return hits

    def _loadable(self, sequence: _Sequence, hits: int) -> int:
        if not self.cpu.capacity:
            return 0
        return self.cpu.hit_length(sequence.digests[hits : (sequence.known - 1) // self.settings.block_size])

    def _count_query(self, sequence: _Sequence, hits: int, loaded: int) -> None:
        if sequence.preempted:
            return
        size, counters = self.settings.block_size, self.counters
        counters.queries += sequence.known
        counters.hits += hits * size
        if self.cpu.capacity:
            counters.external_queries += sequence.known - hits * size
            counters.external_hits += loaded * size

    def _offload(self, arriving: list[Stored]) -> None:
        """Store in the CPU tier what the step before stored on the GPU: the copy takes a step."""
        for stored in arriving:
            new, evicted = self.cpu.store(stored.digests)
            if evicted:
                self._events.append(Removed(evicted, "cpu"))
            if new:
                self._events.append(Stored(new, None, (), stored.block_size, "cpu"))

    def _advance(self) -> None:
        for sequence in tuple(self._running):
            sequence.computed += sequence.scheduled
            sequence.scheduled = 0
            if sequence.computed < sequence.known:
                continue
            if not sequence.prefill_steps:
                sequence.prefill_steps = self._steps - sequence.admitted_at + 1
                self.counters.computed += sequence.prefill_tokens
            known = min(sequence.known + self.settings.decode_tokens, len(sequence.tokens))
            self.counters.generated += known - sequence.known
            sequence.known = known
            if sequence.known == len(sequence.tokens):
                self._running.remove(sequence)
                self._release(sequence)
                self.finished.append(sequence.request)
                self.counters.finished_requests += 1
                self.counters.prefill_steps += sequence.prefill_steps
                self.counters.prefill_tokens += sequence.prefill_tokens
