"""A worker that is stopped for so long that the broker forgets it as the writer of its partitions.

As long as it runs it says again and again how far it read, also where nothing happens.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from pipeline.local.clickhouse.embedded import EmbeddedStore
from tests.support.forgetful_broker import ForgetfulBroker
from tests.support.inputs.generated_logs import shared_log

pytestmark = pytest.mark.night

FORGETS_MS = 2000


@pytest.fixture
def forgetful(tmp_path: Path, free_port: Callable[[], int]) -> Iterator[ForgetfulBroker]:
    broker = ForgetfulBroker(tmp_path / "broker", free_port(), forgets_ms=FORGETS_MS)
    broker.start()
    yield broker
    broker.kill()


def test_a_worker_takes_sources_in_partitions_that_were_idle(
    forgetful: ForgetfulBroker, store: EmbeddedStore, new_laboratory: Callable[..., Any]
) -> None:
    """Partitions of both agents, some of which were never written to."""
    laboratory = new_laboratory(forgetful, store)
    log = shared_log(7, replicas=6, rounds=20, began=time.time() - 600)
    of_replica = {record.replica: [one for one in log if one.replica == record.replica] for record in log}
    parts = [*of_replica.values()]
    worker = laboratory.worker()
    worker.wait_assigned()
    sent = 0
    for part in (parts[:2], parts[2:4], parts[4:]):
        worker.process.send_signal(signal.SIGSTOP)
        time.sleep(forgetful.surely_forgotten_seconds)
        records = [record for one in part for record in one]
        laboratory.produce(records)
        worker.process.send_signal(signal.SIGCONT)
        sent += len(records)
        laboratory.wait_applied(sent)
        laboratory.wait_followed()
    assert worker.alive, worker.said()[-3000:]
    said = worker.said()
    assert said.count("Kafka forgot the transactional id") >= 6, said[-3000:]
    assert "Traceback" not in said
    assert worker.end() == 0
    assert laboratory.verified() > 100
