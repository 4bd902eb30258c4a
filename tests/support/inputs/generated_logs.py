"""Generated events of a fleet, as connectors would publish them."""

from __future__ import annotations

import random
from collections.abc import Iterable
from typing import Any

from schemas.events import Batch, Cleared, EngineCounters, EventsRecord, Opened, Removed, Stored

CAPACITY = 150
"""Blocks of each replica."""


def shared_log(seed: int, *, replicas: int, rounds: int, began: float) -> list[EventsRecord]:
    """Replicas that fill, evict and fill again from few blocks, with clears and restarts."""
    rng = random.Random(seed)
    universe = [rng.getrandbits(64) for _ in range(600)]
    held: list[list[int]] = [[] for _ in range(replicas)]
    lives, seqs = [1] * replicas, [0] * replicas
    queried, hit = [0] * replicas, [0] * replicas
    log = []
    for turn in range(rounds):
        for number in range(replicas):
            batches = []
            at = began + turn * 4 + number * 0.01
            if turn and rng.random() < 0.03:
                lives[number] += 1
                seqs[number] = queried[number] = hit[number] = 0
                held[number] = []
            if not seqs[number]:
                batches.append(Batch(None, at, at, [Opened(first_seq=0, complete=True)]))
            first = seqs[number]
            for step in range(5):
                events: list[Any] = []
                blocks = held[number]
                if rng.random() < 0.02:
                    events.append(Cleared())
                    blocks.clear()
                fresh = [block for block in rng.sample(universe, 12) if block not in blocks]
                queried[number] += 16 * 12
                hit[number] += 16 * (12 - len(fresh))
                while len(blocks) + len(fresh) > CAPACITY:
                    gone = [blocks.pop(0) for _ in range(5)]
                    events.append(Removed(b"".join(block.to_bytes(8, "big") for block in gone)))
                blocks += fresh
                packed = b"".join(block.to_bytes(8, "big") for block in fresh)
                events.append(Stored(packed, 16, 16 * len(fresh)))
                when = at + step * 0.7
                batches.append(Batch(seqs[number], when, when + 0.02, events, engine_events=len(events)))
                seqs[number] += 1
            counters = EngineCounters(queried[number], hit[number], capacity_blocks=CAPACITY, block_size=16)
            batches.append(Batch(None, when, when, [counters]))
            log.append(
                EventsRecord(
                    replica=f"replica-{number}",
                    model="m",
                    hash_domain="m/x/default",
                    dp_rank=0,
                    incarnation=lives[number],
                    batches=batches,
                    first_seq=first,
                    last_seq=seqs[number] - 1,
                )
            )
    return log


def pack(hashes: Iterable[int]) -> bytes:
    return b"".join(value.to_bytes(8, "big") for value in hashes)


def generated_log(seed: int, *, replicas: int, rounds: int, began: float) -> list[EventsRecord]:
    """Random walks of sources: stores, repeated copies, removals; ten batches and 4 s a record."""
    rng = random.Random(seed)
    resident: dict[tuple[int, str], list[int]] = {}
    log = []
    for turn in range(rounds):
        for number in range(replicas):
            batches = []
            if not turn:
                batches.append(Batch(None, began, began, [Opened(first_seq=0, complete=True)]))
            for step in range(10):
                seq = turn * 10 + step
                at = began + turn * 4 + step * 0.4 + number * 0.01
                events: list[Any] = []
                for medium in ("gpu", "cpu"):
                    blocks = resident.setdefault((number, medium), [])
                    fresh = [rng.getrandbits(64) for _ in range(rng.randint(1, 6))]
                    again = rng.sample(blocks, min(len(blocks), rng.randint(0, 2)))
                    for block in [*fresh, *again]:
                        events.append(Stored(pack([block]), 16, 16, medium=medium))
                        blocks.append(block)
                    if len(blocks) > 60:
                        rng.shuffle(blocks)
                        gone = [blocks.pop() for _ in range(rng.randint(1, 8))]
                        events.append(Removed(pack(gone), medium=medium))
                batches.append(Batch(seq, at, at + 0.02, events, engine_events=len(events)))
            log.append(
                EventsRecord(
                    replica=f"replica-{number}",
                    model="m",
                    hash_domain="m/x/default",
                    dp_rank=0,
                    incarnation=1,
                    batches=batches,
                    first_seq=turn * 10,
                    last_seq=turn * 10 + 9,
                )
            )
    return log
