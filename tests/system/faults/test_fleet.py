"""Whatever is done to the agents and the broker: the fleet tables say what the log says."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from typing import Any

import pytest

from pipeline.local.broker.embedded import EmbeddedBroker
from pipeline.local.clickhouse.embedded import EmbeddedStore
from pipeline.verify.fleet.expected import CAUSES
from schemas.events import EventsRecord
from tests.support.inputs.generated_logs import shared_log
from tests.support.invariants import broken
from tests.support.patience import PATIENCE

pytestmark = pytest.mark.night

Make = Callable[..., Any]
_WINDOW = 10.0
REPLICAS = 6


@pytest.fixture(scope="module")
def log() -> list[EventsRecord]:
    return shared_log(5, replicas=REPLICAS, rounds=36, began=time.time() // _WINDOW * _WINDOW - 600)


def assert_as_the_log_says(laboratory: Any) -> dict[str, int]:
    """Let `kvlens verify` compare every table, and look for broken invariants; return the fills by cause."""
    laboratory.verified()
    database = laboratory.settings.clickhouse.database
    assert not broken(laboratory.query, database, at_rest=True)
    # A replica that is first with everything it stores has no peer to get it from; which one, if any, follows
    # from the order in which the agents read the partitions.
    [(rated, led)] = laboratory.query(
        f"SELECT countIf(ideal_hit_rate >= own_ideal_hit_rate AND own_ideal_hit_rate > actual_hit_rate), "
        f"countIf(ideal_hit_rate = own_ideal_hit_rate) "
        f"FROM {database}.hit_potential(from = '2000-01-01 00:00:00', to = '2100-01-01 00:00:00')"
    )
    assert rated == REPLICAS
    assert led <= 1
    sums = ", ".join(f"sum({cause}_blocks)" for cause in CAUSES)
    [counts] = laboratory.query(f"SELECT {sums} FROM {database}.fills_10s FINAL")
    return dict(zip(CAUSES, counts, strict=True))


def wait_counted(laboratory: Any) -> None:
    """Return when what was followed has counted, too: changes wait until all partitions are read that far."""
    deadline = time.monotonic() + PATIENCE
    while found := broken(laboratory.query, laboratory.settings.clickhouse.database, at_rest=True):
        assert time.monotonic() < deadline, found
        time.sleep(0.3)


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
    fleet = laboratory.worker(agents="fleet")
    # Nobody starts after it is killed, who would take it out of its group: its session has to end.
    usual, laboratory.session_seconds = laboratory.session_seconds, 6.0
    second = laboratory.worker(agents="fleet")
    laboratory.session_seconds = usual
    time.sleep(rng.uniform(0.5, 2.0))
    replica.kill()
    replica = laboratory.worker(agents="replica")
    second.wait_assigned()
    fleet.wait_assigned()
    time.sleep(rng.uniform(0.2, 1.0))
    second.kill()
    producing.join(PATIENCE)
    assert not producing.is_alive(), f"not done after {PATIENCE:g} s"
    laboratory.wait_applied(len(log))
    laboratory.wait_followed()
    wait_counted(laboratory)
    assert replica.end() == fleet.end() == 0
    causes = assert_as_the_log_says(laboratory)
    never = ("promoted", "transferred", "generated", "unknown")
    assert all(blocks for cause, blocks in causes.items() if cause not in never), causes


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
    laboratory.wait_applied(len(log))
    laboratory.wait_followed()
    wait_counted(laboratory)
    assert worker.end() == 0
    assert assert_as_the_log_says(laboratory)["peer"]

    # What a worker compiles while it holds partitions, nobody can apply or save meanwhile.
    assert laboratory.table("hot_prefixes_10s")
    for each in laboratory.workers:
        early, late = each.compiled()
        assert {"follow", "count_copies"} <= {line.split("(")[0].rpartition(".")[2] for line in early}
        assert not late
