"""Whatever is done to the agents and the broker: the fleet tables say what the residency topic says."""

from __future__ import annotations

import asyncio
import random
import threading
import time
from collections.abc import Callable, Iterator
from datetime import timezone
from typing import Any

import msgspec
import pytest
from aiokafka import AIOKafkaConsumer, TopicPartition

from pipeline import topics
from pipeline.local.broker.embedded import EmbeddedBroker
from pipeline.local.store.embedded import EmbeddedStore
from schemas.events import Batch, Cleared, EventsRecord, Opened, Removed, Stored
from schemas.residency import ResidencyRecord
from schemas.rows import CapacityCurveRow, FillsRow, RedundancyRow
from tests.pipeline.fleet.comparing import filled_up, fills, needed, newest, oracle_fills, redundancy, trimmed
from tests.pipeline.fleet.oracle import Oracle

Make = Callable[..., Any]
SHARDS = 8
_WINDOW = 10.0


def shared_log(seed: int, *, replicas: int, rounds: int, began: float) -> list[EventsRecord]:
    """Replicas that fill, evict and fill again from few blocks, with clears and restarts."""
    rng = random.Random(seed)
    universe = [rng.getrandbits(64) for _ in range(600)]
    held: list[list[int]] = [[] for _ in range(replicas)]
    lives, seqs = [1] * replicas, [0] * replicas
    log = []
    for turn in range(rounds):
        for number in range(replicas):
            batches = []
            at = began + turn * 4 + number * 0.01
            if turn and rng.random() < 0.03:
                lives[number] += 1
                seqs[number] = 0
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
                while len(blocks) + len(fresh) > 150:
                    gone = [blocks.pop(0) for _ in range(5)]
                    events.append(Removed(b"".join(block.to_bytes(8, "big") for block in gone)))
                blocks += fresh
                packed = b"".join(block.to_bytes(8, "big") for block in fresh)
                events.append(Stored(packed, 16, 16 * len(fresh)))
                when = at + step * 0.7
                batches.append(Batch(seqs[number], when, when + 0.02, events, engine_events=len(events)))
                seqs[number] += 1
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
    return shared_log(5, replicas=6, rounds=36, began=time.time() // _WINDOW * _WINDOW - 600)


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


async def _residency(laboratory: Any) -> dict[int, list[ResidencyRecord]]:
    """Committed records by shard."""
    kafka = laboratory.settings.kafka
    topic = topics.topic_name(kafka, "residency")
    decode = msgspec.msgpack.Decoder(ResidencyRecord).decode
    found: dict[int, list[ResidencyRecord]] = {}
    async with AIOKafkaConsumer(
        bootstrap_servers=kafka.bootstrap_servers, isolation_level="read_committed", enable_auto_commit=False
    ) as consumer:
        places = [TopicPartition(topic, number) for number in range(SHARDS)]
        consumer.assign(places)
        await consumer.seek_to_beginning()
        ends = await consumer.end_offsets(places)
        for place in places:
            found[place.partition] = []
        while any([await consumer.position(place) < ends[place] for place in places]):
            for place, records in (await consumer.getmany(timeout_ms=500)).items():
                found[place.partition] += [decode(record.value) for record in records]
    return found


async def _behind(laboratory: Any) -> int:
    """Records of the residency topic that no commit of the fleet agent covers, markers not counted."""
    kafka = laboratory.settings.kafka
    topic = topics.topic_name(kafka, "residency")
    places = [TopicPartition(topic, number) for number in range(SHARDS)]
    async with AIOKafkaConsumer(
        bootstrap_servers=kafka.bootstrap_servers,
        group_id=f"{kafka.group}.fleet",
        isolation_level="read_committed",
        enable_auto_commit=False,
    ) as consumer:
        left = 0
        for place in places:
            consumer.assign([place])
            [end] = (await consumer.end_offsets([place])).values()
            at = await consumer.committed(place) or 0
            consumer.seek(place, at)
            while await consumer.position(place) < end:
                left += sum(map(len, (await consumer.getmany(timeout_ms=500)).values()))
        return left


def wait_followed(laboratory: Any, seconds: float = 90.0) -> None:
    deadline = time.monotonic() + seconds
    while left := asyncio.run(_behind(laboratory)):
        tails = "\n".join(worker.log.read_text()[-1500:] for worker in laboratory.workers[-2:])
        assert time.monotonic() < deadline, (left, tails)
        time.sleep(0.3)


def rows_of(laboratory: Any, kind: type, shard: int) -> list[Any]:
    columns = ", ".join(kind.__struct_fields__)
    database = laboratory.settings.clickhouse.database
    rows = laboratory.query(f"SELECT {columns} FROM {database}.{kind.TABLE} FINAL WHERE shard = {shard}")
    return [kind(row[0].replace(tzinfo=timezone.utc), *row[1:]) for row in rows]


def assert_as_the_log_says(laboratory: Any) -> dict[str, int]:
    """Compare every shard with the oracle; return the blocks by cause."""
    causes: dict[str, int] = {}
    for shard, records in asyncio.run(_residency(laboratory)).items():
        oracle = Oracle()
        for record in records:
            oracle.apply(record)
        kinds = (FillsRow, RedundancyRow, CapacityCurveRow)
        found = newest(row for kind in kinds for row in rows_of(laboratory, kind, shard))
        assert fills(found["fills_10s"]) == oracle_fills(oracle)
        assert needed(found["capacity_curve_10s"]) == {
            key: trimmed(histogram) for key, histogram in oracle.needed.items()
        }
        shown = redundancy(found["redundancy_10s"])
        for place, by_window in filled_up(oracle.redundancy).items():
            assert {window: shown[place][window] for window in by_window} == by_window
        for each in oracle.fills.values():
            for cause, blocks in each["blocks"].items():
                causes[cause] = causes.get(cause, 0) + blocks
    return causes


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
    for turn in range(4):
        time.sleep(rng.uniform(1.0, 3.0))
        if turn % 2:
            replica.kill()
            replica = laboratory.worker(agents="replica")
            replica.wait_assigned()
        else:
            fleet.kill()
            fleet = laboratory.worker(agents="fleet")
            fleet.wait_assigned()
    second = laboratory.worker(agents="fleet")
    producing.join()
    laboratory.wait_applied(len(log))
    second.wait_assigned()
    second.kill()
    wait_followed(laboratory)
    assert replica.stop() == fleet.stop() == 0
    causes = assert_as_the_log_says(laboratory)
    assert {"peer", "peer_and_evicted", "evicted", "cleared", "cold", "evicted_elsewhere"} <= causes.keys()


def test_a_worker_of_both_agents_and_a_broker_killed(
    log: list[EventsRecord],
    new_parts: Callable[[], tuple[EmbeddedBroker, EmbeddedStore]],
    new_laboratory: Make,
) -> None:
    broker, store = new_parts()
    laboratory = new_laboratory(broker, store)
    worker = laboratory.worker()
    worker.wait_assigned()
    laboratory.produce(log[: len(log) // 2], over_seconds=5.0)
    broker.kill()
    time.sleep(2.0)
    broker.start()
    if worker.process.poll() is not None:
        worker = laboratory.worker()
    laboratory.produce(log[len(log) // 2 :], over_seconds=3.0)
    worker.kill()
    worker = laboratory.worker()
    laboratory.wait_applied(len(log), 90.0)
    wait_followed(laboratory)
    assert worker.stop() == 0
    assert assert_as_the_log_says(laboratory)["peer"]
