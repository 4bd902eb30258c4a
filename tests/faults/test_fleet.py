"""Whatever is done to the agents and the broker: the fleet tables say what the log says."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from pipeline.local.broker.embedded import EmbeddedBroker
from pipeline.local.store.embedded import EmbeddedStore
from pipeline.verify.fleet.expected import CAUSES
from schemas.events import Batch, Cleared, EngineCounters, EventsRecord, Opened, Removed, Stored
from tests.invariants import broken

Make = Callable[..., Any]
_WINDOW = 10.0
REPLICAS = 6
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


@pytest.fixture(scope="module")
def log() -> list[EventsRecord]:
    return shared_log(5, replicas=REPLICAS, rounds=36, began=time.time() // _WINDOW * _WINDOW - 600)


@pytest.fixture
def produced(log: list[EventsRecord]) -> Iterator[Callable[..., threading.Thread]]:
    """A function that appends the log in the background over some seconds."""
    threads = []

    def start(laboratory: Any, seconds: float) -> threading.Thread:
        thread = threading.Thread(target=laboratory.produce, args=(log,), kwargs={"over_seconds": seconds})
        thread.start()
        threads.append(thread)
        return thread

    yield start
    for thread in threads:
        thread.join()


def assert_as_the_log_says(laboratory: Any) -> dict[str, int]:
    """Let `kvlens verify` compare every table, and look for broken invariants; return the fills by cause."""
    laboratory.verified()
    database = laboratory.settings.clickhouse.database
    assert not broken(laboratory.query, database, at_rest=True)
    [(rated,)] = laboratory.query(
        f"SELECT countIf(ideal_hit_rate > own_ideal_hit_rate AND own_ideal_hit_rate > actual_hit_rate) "
        f"FROM {database}.hit_potential(from = '2000-01-01 00:00:00', to = '2100-01-01 00:00:00')"
    )
    assert rated == REPLICAS
    sums = ", ".join(f"sum({cause}_blocks)" for cause in CAUSES)
    [counts] = laboratory.query(f"SELECT {sums} FROM {database}.fills_10s FINAL")
    return dict(zip(CAUSES, counts, strict=True))


def test_agents_killed_at_random_and_a_second_fleet_agent(
    log: list[EventsRecord],
    broker: EmbeddedBroker,
    store: EmbeddedStore,
    new_laboratory: Make,
    produced: Make,
) -> None:
    rng = random.Random(3)
    laboratory = new_laboratory(broker, store)
    replica, fleet = laboratory.worker(agents="replica"), laboratory.worker(agents="fleet")
    replica.wait_assigned()
    fleet.wait_assigned()
    producing = produced(laboratory, 14.0)
    time.sleep(rng.uniform(0.5, 2.0))
    fleet.kill()
    fleet, second = laboratory.worker(agents="fleet"), laboratory.worker(agents="fleet")
    time.sleep(rng.uniform(0.5, 2.0))
    replica.kill()
    replica = laboratory.worker(agents="replica")
    second.wait_assigned()
    fleet.wait_assigned()
    time.sleep(rng.uniform(0.2, 1.0))
    second.kill()
    producing.join()
    laboratory.wait_applied(len(log))
    laboratory.wait_followed()
    assert replica.stop() == fleet.stop() == 0
    causes = assert_as_the_log_says(laboratory)
    assert all(blocks for cause, blocks in causes.items() if cause not in ("promoted", "unknown")), causes


def test_a_worker_of_both_agents_and_a_broker_killed(
    log: list[EventsRecord],
    new_parts: Callable[[], tuple[EmbeddedBroker, EmbeddedStore]],
    new_laboratory: Make,
) -> None:
    broker, store = new_parts()
    laboratory = new_laboratory(broker, store)
    worker = laboratory.worker()
    worker.wait_assigned()
    laboratory.produce(log[: len(log) // 2], over_seconds=3.0)
    broker.kill()
    broker.start()
    laboratory.produce(log[len(log) // 2 :], over_seconds=3.0)
    worker.kill()
    worker = laboratory.worker()
    laboratory.wait_applied(len(log), 90.0)
    laboratory.wait_followed()
    assert worker.stop() == 0
    assert assert_as_the_log_says(laboratory)["peer"]
