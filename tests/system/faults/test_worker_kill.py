"""Whatever is done to workers, broker and store: all tables end as those of a run nobody disturbed."""

from __future__ import annotations

import random
import signal
import time
from collections.abc import Callable
from typing import Any

import pytest

from pipeline.local.broker.embedded import EmbeddedBroker
from pipeline.local.clickhouse.embedded import EmbeddedStore
from pipeline.worker.exits import ExitCode
from schemas.events import EventsRecord
from tests.support.patience import PATIENCE

pytestmark = pytest.mark.night

Make = Callable[..., Any]
_WINDOW = 10.0


@pytest.fixture(scope="module")
def log(generated: Make) -> list[EventsRecord]:
    began = time.time() // _WINDOW * _WINDOW - 600
    return generated(7, replicas=6, rounds=40, began=began)


@pytest.fixture(scope="module")
def undisturbed(
    log: list[EventsRecord],
    broker: EmbeddedBroker,
    store: EmbeddedStore,
    laboratories: Make,
    all_tables: Make,
) -> dict[str, Any]:
    laboratory = laboratories(broker, store)
    laboratory.produce(log)
    worker = laboratory.worker()
    laboratory.wait_applied(len(log))
    assert worker.end() == ExitCode.OK
    tables = all_tables(laboratory)
    assert all(tables[name] for name in tables if name != "engine_counters")
    assert laboratory.verified()
    return tables


@pytest.mark.parametrize("kills", [2, 4])
def test_workers_killed_at_random(
    kills: int,
    log: list[EventsRecord],
    broker: EmbeddedBroker,
    store: EmbeddedStore,
    new_laboratory: Make,
    all_tables: Make,
    undisturbed: dict[str, Any],
    produced: Make,
) -> None:
    rng = random.Random(11)
    laboratory = new_laboratory(broker, store)
    portion = len(log) // kills
    for start in range(0, len(log), portion):
        worker = laboratory.worker()
        worker.wait_assigned()
        feeding = produced(laboratory, 2.0, slice(start, start + portion))
        time.sleep(rng.uniform(0.3, 2.3))
        worker.kill()
        feeding.join(PATIENCE)
        assert not feeding.is_alive(), f"not done after {PATIENCE:g} s"
    worker = laboratory.worker()
    laboratory.wait_applied(len(log))
    assert worker.end() == ExitCode.OK
    assert all_tables(laboratory) == undisturbed
    assert laboratory.verified()


def test_frozen_worker_is_fenced(
    log: list[EventsRecord],
    broker: EmbeddedBroker,
    store: EmbeddedStore,
    new_laboratory: Make,
    all_tables: Make,
    undisturbed: dict[str, Any],
    produced: Make,
) -> None:
    laboratory = new_laboratory(broker, store)
    produced(laboratory, 10.0)
    laboratory.session_seconds, usual = 6.0, laboratory.session_seconds
    frozen = laboratory.worker()
    laboratory.session_seconds = usual
    laboratory.wait_applied(1)
    frozen.send(signal.SIGSTOP)
    successor = laboratory.worker()
    successor.wait_assigned()
    laboratory.wait_applied(min(len(log), laboratory.committed() + 30))
    frozen.send(signal.SIGCONT)
    laboratory.wait_applied(len(log))
    # Depending on what it does first it is fenced, or learns that it left the group and joins again.
    assert frozen.end() in (ExitCode.OK, ExitCode.RESTART)
    assert successor.end() == ExitCode.OK
    assert all_tables(laboratory) == undisturbed
    assert laboratory.verified()


def test_partitions_move_to_a_second_worker_and_back(
    log: list[EventsRecord],
    broker: EmbeddedBroker,
    store: EmbeddedStore,
    new_laboratory: Make,
    all_tables: Make,
    undisturbed: dict[str, Any],
    produced: Make,
) -> None:
    laboratory = new_laboratory(broker, store)
    produced(laboratory, 12.0)
    first = laboratory.worker()
    laboratory.wait_applied(1)
    second = laboratory.worker()
    second.wait_assigned()
    assert first.end() == ExitCode.OK
    laboratory.wait_applied(len(log))
    assert second.end() == ExitCode.OK
    assert all_tables(laboratory) == undisturbed
    assert laboratory.verified()


def test_store_and_broker_crash_under_a_worker(
    log: list[EventsRecord],
    new_parts: Make,
    new_laboratory: Make,
    all_tables: Make,
    undisturbed: dict[str, Any],
    produced: Make,
) -> None:
    broker, store = new_parts()
    laboratory = new_laboratory(broker, store)
    produced(laboratory, 8.0)
    worker = laboratory.worker()
    laboratory.wait_applied(1)

    store.kill()
    # What was written before may still be committed.
    deadline = time.monotonic() + PATIENCE
    held, since = laboratory.committed(), time.monotonic()
    while time.monotonic() < since + 3.0:
        assert time.monotonic() < deadline, "offsets are committed while the rows cannot be written"
        time.sleep(0.2)
        if (committed := laboratory.committed()) != held:
            held, since = committed, time.monotonic()
    assert worker.process.poll() is None
    store.start()
    laboratory.wait_applied(min(len(log), held + 1))

    broker.kill()
    broker.start()
    if worker.process.poll() is not None:
        # A transaction that the outage cut off ends the worker; its supervisor starts it again.
        assert worker.process.returncode == ExitCode.RESTART
        worker = laboratory.worker()
    deadline = time.monotonic() + PATIENCE
    while laboratory.committed() < len(log):
        assert time.monotonic() < deadline, worker.said()[-2000:]
        if worker.process.poll() is not None:
            assert worker.process.returncode in (ExitCode.RESTART, ExitCode.UNAVAILABLE)
            worker = laboratory.worker()
        time.sleep(0.3)
    if (code := worker.end()) != ExitCode.OK:
        # What was applied last may have met the outage, too; one that was just started hears no signals yet.
        assert code in (ExitCode.RESTART, -signal.SIGTERM)
        worker = laboratory.worker()
        worker.wait_assigned()
        assert worker.end() == ExitCode.OK
    assert all_tables(laboratory) == undisturbed
    assert laboratory.verified()
