"""A worker whose topics are deleted and made again, get more partitions, or lose records, while it runs."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable
from typing import Any

import pytest

from pipeline.local.broker.embedded import EmbeddedBroker
from pipeline.local.clickhouse.embedded import EmbeddedStore
from pipeline.worker.exits import ExitCode
from tests.support.inputs.generated_logs import shared_log
from tests.support.patience import PATIENCE
from tests.support.processes import as_toml, kvlens
from tests.support.topics_changed import made_again, more_partitions, records_removed

Make = Callable[..., Any]


def trusts(laboratory: Any) -> dict[str, str]:
    """Return the trust of each replica in its newest row of stream health."""
    table = f"{laboratory.settings.clickhouse.database}.stream_health_10s"
    return dict(
        laboratory.query(
            f"SELECT replica, argMax(trust, (window, version)) FROM {table} FINAL GROUP BY replica"
        )
    )


@pytest.mark.night
def test_a_topic_made_again_is_refused_however_long_it_gets(
    broker: EmbeddedBroker, store: EmbeddedStore, new_laboratory: Make
) -> None:
    laboratory = new_laboratory(broker, store)
    first = shared_log(21, replicas=4, rounds=10, began=time.time() - 3000)
    laboratory.produce(first)
    worker = laboratory.worker()
    laboratory.wait_applied(len(first), seconds=180.0)
    laboratory.wait_followed()

    # While the topic is not there, the worker would end for that.
    worker.send(signal.SIGSTOP)
    made_again(laboratory.settings, ["events"])
    worker.send(signal.SIGCONT)
    other = shared_log(22, replicas=4, rounds=30, began=time.time() - 2000)
    laboratory.produce(other)
    cause = f"{laboratory.settings.kafka.topic_prefix}.events.v1 was deleted and made again"
    assert worker.process.wait(PATIENCE) == ExitCode.UNAVAILABLE
    assert cause in worker.said().splitlines()[-1], worker.said()[-3000:]
    # The new topic is longer than the old one was, and still it is not read on at the old offset.
    worker = laboratory.worker()
    assert worker.process.wait(PATIENCE) == ExitCode.UNAVAILABLE
    last = worker.said().splitlines()[-1]
    assert cause in last, worker.said()[-3000:]
    assert "kvlens state rebuild" in last
    windows = "SELECT max(window) < now() - INTERVAL 2200 SECOND FROM {}.stream_health_10s"
    assert laboratory.query(windows.format(laboratory.settings.clickhouse.database)) == [(1,)]

    config = laboratory.directory / "kvlens.toml"
    config.write_text(as_toml(laboratory.settings))
    rebuild = "state", "rebuild", "--yes", "--no-wait", "--config", str(config)
    deadline = time.monotonic() + PATIENCE
    # A worker that ended so stays a member of its groups for a session.
    while (answer := kvlens(*rebuild, cwd=laboratory.directory))[0] != 0:
        assert "members" in answer[2], answer
        assert time.monotonic() < deadline, answer
        time.sleep(1.0)
    worker = laboratory.worker()
    laboratory.wait_applied(len(other))
    laboratory.wait_followed()
    assert worker.end() == 0


@pytest.mark.night
def test_a_fleet_whose_topic_was_made_again_is_refused(
    broker: EmbeddedBroker, store: EmbeddedStore, new_laboratory: Make
) -> None:
    laboratory = new_laboratory(broker, store, partitions=2)
    log = shared_log(23, replicas=3, rounds=10, began=time.time() - 600)
    laboratory.produce(log)
    worker = laboratory.worker()
    laboratory.wait_applied(len(log), seconds=180.0)
    laboratory.wait_followed()
    assert worker.end() == 0
    made_again(laboratory.settings, ["residency"])
    for agents in ("replica", "fleet"):
        worker = laboratory.worker(agents=agents)
        assert worker.process.wait(PATIENCE) == ExitCode.UNAVAILABLE
        assert "residency.v1 was deleted and made again" in worker.said().splitlines()[-1]


@pytest.mark.night
def test_more_partitions_end_the_worker_with_their_number(
    broker: EmbeddedBroker, store: EmbeddedStore, new_laboratory: Make
) -> None:
    laboratory = new_laboratory(broker, store, partitions=2)
    worker = laboratory.worker()
    worker.wait_assigned()
    more_partitions(laboratory.settings, "residency", 3)
    assert worker.process.wait(PATIENCE) == ExitCode.UNAVAILABLE
    assert "residency.v1 has 3 partitions but 2 are needed" in worker.said().splitlines()[-1]


@pytest.mark.night
def test_records_removed_before_they_were_read_degrade_sources_at_once(
    broker: EmbeddedBroker, store: EmbeddedStore, new_laboratory: Make
) -> None:
    """Engines are idle afterwards: no batch ever comes that would show a gap."""
    laboratory = new_laboratory(broker, store, partitions=1, idle_carry_seconds=3600.0)
    log = shared_log(24, replicas=3, rounds=20, began=time.time() - 300)
    half = len(log) // 2
    laboratory.produce(log[:half])
    worker = laboratory.worker()
    laboratory.wait_applied(half, seconds=180.0)
    before = trusts(laboratory)
    assert set(before.values()) == {"complete"}
    worker.send(signal.SIGSTOP)
    time.sleep(2.0)  # a fetch that waits at the broker is answered by then, and the next one is not asked
    laboratory.produce(log[half:])
    records_removed(laboratory.settings, "events")
    worker.send(signal.SIGCONT)
    assert worker.process.wait(PATIENCE) == ExitCode.RESTART
    assert 0 < laboratory.findings().removed <= len(log) - half
    assert "were removed before they were read" in worker.said().splitlines()[-1], worker.said()[-3000:]

    worker = laboratory.worker()
    worker.wait_said("retention removed records before they were read")
    deadline = time.monotonic() + PATIENCE
    while trusts(laboratory) != dict.fromkeys(before, "degraded"):
        assert time.monotonic() < deadline, (trusts(laboratory), worker.said()[-3000:])
        time.sleep(0.3)
    assert worker.end() == 0
    findings = laboratory.findings()
    assert (findings.removed, findings.degraded) == (0, len(before))
