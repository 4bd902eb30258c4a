"""Workers that are away for so long that the broker forgets how far their groups had read.

It keeps the offsets of a group without members for `offsets.retention.minutes`, a week by default.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from pipeline.local.broker import embedded
from pipeline.local.broker.embedded import EmbeddedBroker
from pipeline.local.broker.properties import server_properties
from pipeline.local.clickhouse.embedded import EmbeddedStore
from tests.support.inputs.generated_logs import shared_log
from tests.support.patience import PATIENCE

pytestmark = pytest.mark.night

FORGETS = {"offsets.retention.minutes": "1", "offsets.retention.check.interval.ms": "2000"}
"""As soon as a broker can."""


@pytest.fixture
def forgetful(tmp_path: Path, free_port: Callable[[], int]) -> Iterator[EmbeddedBroker]:
    def properties(*args: Any) -> Mapping[str, str]:
        return {**server_properties(*args), **FORGETS}

    broker = EmbeddedBroker(tmp_path / "broker", free_port())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(embedded, "server_properties", properties)
        broker.start()
    yield broker
    broker.kill()


def test_a_worker_goes_on_at_its_checkpoints(
    forgetful: EmbeddedBroker, store: EmbeddedStore, new_laboratory: Callable[..., Any]
) -> None:
    laboratory = new_laboratory(forgetful, store, partitions=2)
    log = shared_log(25, replicas=4, rounds=20, began=time.time() - 600)
    half = len(log) // 2
    laboratory.produce(log[:half])
    worker = laboratory.worker()
    laboratory.wait_applied(half)
    laboratory.wait_followed()
    assert worker.end() == 0

    deadline = time.monotonic() + PATIENCE
    while laboratory.committed():
        assert time.monotonic() < deadline
        time.sleep(2.0)

    laboratory.produce(log[half:])
    worker = laboratory.worker()
    laboratory.wait_applied(len(log))
    laboratory.wait_followed()
    assert worker.end() == 0
    assert "Traceback" not in worker.said()
    assert laboratory.verified() > 100
