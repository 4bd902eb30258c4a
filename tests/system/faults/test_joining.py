"""A worker whose broker goes away while it joins the group ends up with partitions all the same."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pipeline.worker.exits import ExitCode

pytestmark = pytest.mark.night

Make = Callable[..., Any]


def test_broker_away_while_a_worker_joins(
    new_parts: Make, new_laboratory: Make, generated: Make, tmp_path: Path
) -> None:
    broker, store = new_parts()
    laboratory = new_laboratory(broker, store)
    log = generated(5, replicas=3, rounds=10, began=time.time() - 600)
    laboratory.produce(log)
    # The broker makes its topic of offsets for the first group; afterwards it knows coordinators at once.
    assert laboratory.committed() == 0
    waiting = tmp_path / "waiting"
    waiting.touch()
    worker = laboratory.worker(waiting_for=waiting)
    worker.wait_said("consumer met the broker", times=3)
    broker.kill()
    waiting.unlink()
    # Consumers of both agents, and that of choices, know that there is a broker, and not which topics it has.
    worker.wait_said("Unable to update metadata", times=3)
    broker.start()
    # Nearly always they join now before they ask again, and are given nothing at first.
    laboratory.wait_applied(len(log))
    laboratory.wait_followed()
    assert worker.end() == ExitCode.OK
    assert laboratory.verified()
