"""The connector is killed again and again under a fleet of engines: the tables are the engines' own truth."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from pipeline.local.broker.embedded import EmbeddedBroker
from pipeline.local.clickhouse.embedded import EmbeddedStore
from pipeline.simulator.addresses import AddressPlan
from pipeline.simulator.engine.settings import EngineSettings
from pipeline.simulator.fleet import Fleet, FleetSettings
from pipeline.simulator.traffic.workload import WorkloadSettings
from schemas.discovery_settings import Replica
from schemas.events import EventsRecord
from tests.support.events_log import read_events
from tests.support.processes import as_toml, kvlens

pytestmark = pytest.mark.night

Make = Callable[..., Any]
ERAS = ("vllm-0.22", "vllm-0.33", "sglang-0.5.15", "vllm-0.24")
"""Of both replay layouts, arrays and maps."""
KILLS = 4


@pytest.fixture
def fleet() -> Iterator[Fleet]:
    """Four engines under traffic that makes them evict, published in the background when `run` is."""
    made = Fleet(
        FleetSettings(
            replicas=len(ERAS),
            eras=ERAS,
            engine=EngineSettings(num_blocks=400, cpu_blocks=100, decode_tokens=4),
            workload=WorkloadSettings(seed=3, rate=40.0, system_prompts=4, system_prompt_tokens=200),
            steps_per_second=50.0,
            addresses=AddressPlan(base_port=0, metrics_port=None),
        )
    )
    yield made
    made.stop()
    made.close()


def replicas_of(fleet: Fleet) -> list[Replica]:
    return [
        Replica(id=at.id, model=at.model, endpoint=at.endpoint, replay_endpoint=at.replay_endpoint)
        for at in fleet.addresses()
    ]


def test_tables_are_those_of_the_engines(
    fleet: Fleet, broker: EmbeddedBroker, store: EmbeddedStore, new_laboratory: Make, new_station: Make
) -> None:
    rng = random.Random(8)
    laboratory = new_laboratory(broker, store, idle_carry_seconds=60.0)
    station = new_station(kafka=laboratory.settings.kafka, replicas=replicas_of(fleet))
    worker = laboratory.worker()
    traffic = threading.Thread(target=fleet.run)
    traffic.start()
    for _ in range(KILLS):
        connector = station.start()
        connector.wait_said("positions_loaded")
        time.sleep(rng.uniform(0.1, 2.5))
        connector.kill()
    connector = station.start()
    connector.wait_said("positions_loaded")
    time.sleep(1.0)
    fleet.stop()
    traffic.join(90.0)
    assert not traffic.is_alive(), "not done after 90 s"

    assert_engines_own(laboratory, fleet, connector, worker)


def test_a_log_in_more_partitions_goes_on_where_the_old_one_ends(
    fleet: Fleet, broker: EmbeddedBroker, store: EmbeddedStore, new_laboratory: Make, new_station: Make
) -> None:
    old = new_laboratory(broker, store, idle_carry_seconds=60.0)
    new = new_laboratory(broker, store, idle_carry_seconds=60.0, partitions=12)
    config = new.directory / "new.toml"
    config.write_text(as_toml(new.settings))
    copy = "topics", "copy", "--from", old.settings.kafka.topic_prefix, "--config", str(config)

    station = new_station(kafka=old.settings.kafka, replicas=replicas_of(fleet))
    traffic = threading.Thread(target=fleet.run)
    traffic.start()
    connector = station.start()
    connector.wait_said("positions_loaded")
    time.sleep(2.0)
    assert kvlens(*copy, cwd=new.directory)[0] == 0
    time.sleep(1.0)
    connector.kill()
    code, said, _ = kvlens(*copy, cwd=new.directory)
    assert (code, said.splitlines()[-1]) == (
        0,
        "none came meanwhile: if no connector writes there any more, start the new ones",
    )
    by_replica = of_replicas(read_events(old.settings.kafka))
    assert of_replicas(read_events(new.settings.kafka)) == by_replica
    assert sorted(by_replica) == sorted(replica.id for replica in replicas_of(fleet))

    station = new_station(kafka=new.settings.kafka, replicas=replicas_of(fleet))
    worker = new.worker()
    connector = station.start()
    connector.wait_said("positions_loaded")
    time.sleep(1.0)
    fleet.stop()
    traffic.join(90.0)
    assert not traffic.is_alive(), "not done after 90 s"
    assert_engines_own(new, fleet, connector, worker)
    code, _, said = kvlens(*copy, cwd=new.directory)
    assert (code, "connectors write to these topics already" in said) == (1, True)


def of_replicas(records: list[EventsRecord]) -> dict[str, list[EventsRecord]]:
    """Return the records of each replica in their order."""
    found: dict[str, list[EventsRecord]] = {}
    for record in records:
        found.setdefault(record.replica, []).append(record)
    return found


def assert_engines_own(laboratory: Any, fleet: Fleet, connector: Any, worker: Any) -> None:
    """Wait for the last batch of each engine, end both processes, and compare the tables with the engines."""
    database = laboratory.settings.clickhouse.database
    last = {source.replica: source.publisher.last_sequence for source in fleet.sources}
    deadline = time.monotonic() + 60
    while dict(laboratory.query(f"SELECT replica, last_seq FROM {database}.sources FINAL")) != last:
        assert time.monotonic() < deadline, connector.said()[-2000:] + worker.said()[-2000:]
        time.sleep(0.3)
    connector.stop()
    assert worker.end() == 0

    truth = {source.replica: source.engine for source in fleet.sources}
    assert min(engine.counters.evicted_blocks for engine in truth.values()) > 100, (
        "the test would show little"
    )
    sources = f"SELECT replica, count(), any(trust), sum(closed_reason != '') FROM {database}.sources FINAL"
    assert sorted(laboratory.query(f"{sources} GROUP BY replica")) == [
        (name, 1, "complete", 0) for name in sorted(truth)
    ]
    health = (
        "SELECT replica, sum(batches), sum(lost_batches + undecodable_events + restarts), "
        f"groupUniqArray(trust) FROM {database}.stream_health_10s FINAL GROUP BY replica"
    )
    assert sorted(laboratory.query(health)) == [
        (name, (last[name] or 0) + 1, 0, ["complete"]) for name in sorted(truth)
    ]
    flow = (
        "SELECT replica, sum(stored_blocks), sum(removed_blocks), sum(unknown_removed_blocks) "
        f"FROM {database}.flow_10s FINAL WHERE medium = 'gpu' GROUP BY replica"
    )
    assert sorted(laboratory.query(flow)) == [
        (name, engine.counters.stored_blocks, engine.counters.evicted_blocks, 0)
        for name, engine in sorted(truth.items())
    ]
    occupancy = (
        "SELECT replica, medium, sum(entries), sum(blocks) FROM {0}.occupancy_10s FINAL "
        "WHERE (replica, window) IN (SELECT replica, max(window) FROM {0}.occupancy_10s GROUP BY replica) "
        "GROUP BY replica, medium HAVING sum(entries) > 0"
    )
    expected = {(name, "gpu", engine.pool.physical, engine.pool.distinct) for name, engine in truth.items()}
    expected |= {(name, "cpu", len(e.cpu), len(e.cpu)) for name, e in truth.items() if len(e.cpu)}
    assert set(laboratory.query(occupancy.format(database))) == expected
    assert laboratory.verified()
