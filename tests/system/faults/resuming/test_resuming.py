"""The connector process is killed and comes back: the log holds what the engines published, once."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from aiokafka import AIOKafkaProducer

from connectors.kafka.topics import topic_name
from schemas.events import Closed, Gap, Opened
from schemas.positions import PositionRecord, position_key
from tests.support.client_partition import client_partition

Make = Callable[..., Any]
LAYOUTS = ({"replay_frames": 2}, {"replay_frames": 3})
KILLS = 6


def whole(life: Any, payloads: list[bytes], contents: Make, first: int = 0) -> None:
    """Assert that a life in the log holds every batch from `first` on, in order, as the engine sent it."""
    assert life.order == list(range(first, len(payloads)))
    expected = contents(payloads)
    assert [life.batches[seq].events for seq in life.order] == expected[first:]
    assert [life.batches[seq].ts for seq in life.order] == [
        msgspec.msgpack.decode(payload)[0] for payload in payloads[first:]
    ]


@pytest.mark.night
def test_killed_again_and_again_nothing_is_lost(new_station: Make, contents: Make) -> None:
    """At random moments: while it starts, loads, catches up, runs."""
    rng = random.Random(5)
    engines = [{**layout, "buffer_steps": 100_000} for layout in (*LAYOUTS, *LAYOUTS)]
    station = new_station(engines, linger_seconds=0.05)
    with station.traffic():
        for turn in range(KILLS):
            connector = station.start()
            if turn % 3:
                connector.wait_said("positions_loaded")
            time.sleep(rng.uniform(0.0, 1.5))
            connector.kill()
        connector = station.start()
        connector.wait_said("positions_loaded")
        time.sleep(1.0)
    station.log.wait_caught_up(station.engines)
    connector.stop()
    for engine in station.engines:
        (life,) = station.log.lives(engine.name)
        whole(life, engine.published, contents)
        assert life.notice(Opened) == [Opened(0, True, engine.publisher.endpoint)]
        assert life.notices == life.notice(Opened)
        assert life.repeated == 0


@pytest.mark.night
def test_killed_while_engines_restart(new_station: Make, contents: Make) -> None:
    """What an engine had not yet handed over dies with it; all else is there, each life by itself."""
    rng = random.Random(6)
    station = new_station([*LAYOUTS, *LAYOUTS], linger_seconds=0.02)
    with station.traffic() as traffic:
        for _ in range(KILLS):
            connector = station.start()
            connector.wait_said("positions_loaded")
            for _ in range(rng.randint(0, 3)):
                time.sleep(rng.uniform(0.0, 0.5))
                traffic.restart(rng.choice(station.engines))
            time.sleep(rng.uniform(0.0, 0.5))
            connector.kill()
            if rng.random() < 0.5:
                traffic.restart(rng.choice(station.engines))
        connector = station.start()
        connector.wait_said("positions_loaded")
        time.sleep(1.0)
    station.log.wait_caught_up(station.engines)
    connector.stop()
    assert sum(len(engine.lives) - 1 for engine in station.engines) > KILLS
    for engine in station.engines:
        lives = station.log.lives(engine.name)
        # The first batch of a life says which one it is.
        begins = [msgspec.msgpack.decode(payloads[0])[0] for payloads in engine.lives if payloads]
        numbers = [begins.index(life.batches[0].ts) for life in lives]
        assert numbers == sorted(set(numbers))
        assert numbers[-1] == len(begins) - 1
        lived = [list(payloads.values()) for payloads in engine.lives if payloads]
        for number, life in zip(numbers, lives, strict=True):
            last = number == numbers[-1]
            assert life.notices == [Opened(0, True, engine.publisher.endpoint)] + (
                [] if last else [Closed("restarted")]
            )
            whole(life, lived[number] if last else lived[number][: len(life.order)], contents)
            assert life.repeated == 0
        incarnations = [life.incarnation for life in lives]
        assert incarnations == sorted(incarnations)


@pytest.mark.night
def test_an_orderly_restart_continues_the_same_life(new_station: Make, contents: Make) -> None:
    station = new_station(LAYOUTS)
    for _ in range(3):
        connector = station.start()
        connector.wait_said("positions_loaded")
        with station.traffic():
            time.sleep(1.0)
        connector.stop()
        with station.traffic():
            time.sleep(0.3)
    connector = station.start()
    station.log.wait_caught_up(station.engines)
    connector.stop()
    for engine in station.engines:
        (life,) = station.log.lives(engine.name)
        whole(life, engine.published, contents)
        assert len(life.notices) == 1
        assert life.repeated == 0


@pytest.mark.night
def test_a_successor_starts_before_its_predecessor_has_ended(new_station: Make, contents: Make) -> None:
    """As in a rolling update: both publish the same life for a while, whoever of them ends."""
    station = new_station(LAYOUTS)
    with station.traffic():
        first = station.start()
        first.wait_said("positions_loaded")
        time.sleep(1.0)
        second = station.start()
        second.wait_said("positions_loaded")
        time.sleep(1.0)
        first.stop()
        third = station.start()
        third.wait_said("positions_loaded")
        time.sleep(1.0)
        second.kill()
        time.sleep(0.5)
    station.log.wait_caught_up(station.engines)
    third.stop()
    for engine in station.engines:
        (life,) = station.log.lives(engine.name)
        whole(life, engine.published, contents)
        assert life.repeated > 0
        assert len(life.notices) == 1


@pytest.mark.night
def test_away_for_longer_than_the_buffer_is_one_gap(new_station: Make, contents: Make) -> None:
    station = new_station([{**layout, "buffer_steps": 50} for layout in LAYOUTS])
    connector = station.start()
    connector.wait_said("positions_loaded")
    for engine in station.engines:
        engine.publish(20)
    station.log.wait_caught_up(station.engines)
    connector.kill()
    for engine in station.engines:
        engine.publish(200)
    connector = station.start()
    station.log.wait_caught_up(station.engines)
    for engine in station.engines:
        engine.publish(5)
    station.log.wait_caught_up(station.engines)
    connector.stop()
    for engine in station.engines:
        (life,) = station.log.lives(engine.name)
        assert life.notice(Gap) == [Gap(20, 169, "replay_truncated")]
        assert life.order == [*range(20), *range(170, 225)]
        expected = contents(engine.published)
        assert all(life.batches[seq].events == expected[seq] for seq in life.order)


@pytest.mark.night
def test_engines_restarted_while_nobody_looked(new_station: Make, contents: Make) -> None:
    """Whether the new life is shorter, as long, or already further on."""
    lengths = [(30, 10), (30, 30), (30, 31), (30, 90)]
    station = new_station([layout for _ in lengths for layout in LAYOUTS])
    told = list(zip(station.engines, [pair for pair in lengths for _ in LAYOUTS], strict=True))
    connector = station.start()
    connector.wait_said("positions_loaded")
    for engine, (first, _) in told:
        engine.publish(first)
    station.log.wait_caught_up(station.engines)
    connector.kill()
    for engine, (_, second) in told:
        engine.restart()
        engine.publish(second)
    connector = station.start()
    station.log.wait(lambda: all(len(station.log.lives(engine.name)) == 2 for engine in station.engines))
    station.log.wait_caught_up(station.engines)
    for engine in station.engines:
        engine.publish(5)
    station.log.wait_caught_up(station.engines)
    connector.stop()
    for engine in station.engines:
        before, after = station.log.lives(engine.name)
        assert after.incarnation > before.incarnation
        assert before.notice(Closed) == [Closed("restarted")]
        assert before.notice(Gap) == after.notice(Gap) == after.notice(Closed) == []
        assert after.notice(Opened) == [Opened(0, True, engine.publisher.endpoint)]
        for life, payloads in zip((before, after), engine.lives, strict=True):
            whole(life, list(payloads.values()), contents)


@pytest.mark.night
def test_clock_was_set_back_before_the_start(new_station: Make, contents: Make) -> None:
    """The last incarnations were named by a clock far ahead: new lives are still greater ones."""
    station = new_station(LAYOUTS)
    ahead = int((time.time() + 1e6) * 1e6)
    positions = [
        PositionRecord(
            engine.name, 0, partition=0, offset=-1, incarnation=ahead, seq=7, fingerprint=1, closed=closed
        )
        for engine, closed in zip(station.engines, (True, False), strict=True)
    ]
    asyncio.run(write_positions(station, positions))
    for engine in station.engines:
        engine.publish(3)
    connector = station.start()
    station.log.wait_caught_up(station.engines)
    for engine in station.engines:
        engine.publish(2)
    station.log.wait_caught_up(station.engines)
    connector.stop()
    closed, open_ = (station.log.lives(engine.name) for engine in station.engines)
    assert len(closed) == 1
    assert (open_[0].incarnation, open_[0].notices) == (ahead, [Closed("restarted")])
    for engine, lives in zip(station.engines, (closed, open_), strict=True):
        assert lives[-1].incarnation > ahead
        whole(lives[-1], engine.published, contents)


async def write_positions(station: Any, positions: list[PositionRecord]) -> None:
    kafka = station.settings.kafka
    async with AIOKafkaProducer(bootstrap_servers=kafka.bootstrap_servers) as producer:
        for position in positions:
            position.partition = client_partition(position.replica, 8)
            await producer.send_and_wait(
                topic_name(kafka, "positions"),
                msgspec.msgpack.encode(position),
                key=position_key(position.replica, position.dp_rank),
            )
