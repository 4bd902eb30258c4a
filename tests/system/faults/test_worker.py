"""The worker as a process, from a generated log to the tables, against a plain recount."""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from collections.abc import Callable
from datetime import datetime, timezone
from typing import Any

import pytest

from pipeline.local.broker.embedded import EmbeddedBroker
from pipeline.local.clickhouse.embedded import EmbeddedStore
from schemas.events import EventsRecord, Removed, Stored

pytestmark = pytest.mark.night

Make = Callable[..., Any]


def recount(log: list[EventsRecord]) -> tuple[dict[Any, tuple[int, int]], dict[Any, tuple[int, int]]]:
    """Return (entries, blocks) and (stored, removed) by (window, replica, medium), counted plainly."""
    copies: defaultdict[tuple[str, str], Counter[bytes]] = defaultdict(Counter)
    occupancy: dict[Any, tuple[int, int]] = {}
    flow: defaultdict[Any, list[int]] = defaultdict(lambda: [0, 0])
    for record in log:
        for batch in record.batches:
            if batch.seq is None:
                continue
            window = datetime.fromtimestamp(batch.ts // 10 * 10, timezone.utc).replace(tzinfo=None)
            for event in batch.events:
                assert isinstance(event, Stored | Removed)
                held = copies[record.replica, event.medium]
                hashes = [event.hashes[i : i + 8] for i in range(0, len(event.hashes), 8)]
                for one in hashes:
                    held[one] += 1 if isinstance(event, Stored) else -1
                flow[window, record.replica, event.medium][isinstance(event, Removed)] += len(hashes)
            for medium in ("gpu", "cpu"):
                held = copies[record.replica, medium]
                present = [count for count in held.values() if count]
                occupancy[window, record.replica, medium] = (sum(present), len(present))
    return occupancy, {key: (stored, removed) for key, (stored, removed) in flow.items()}


def test_tables_equal_a_recount(
    broker: EmbeddedBroker, store: EmbeddedStore, new_laboratory: Make, generated: Make
) -> None:
    laboratory = new_laboratory(broker, store)
    log = generated(1, replicas=5, rounds=30, began=time.time() - 600)
    laboratory.produce(log[:70])
    laboratory.produce(log[70:], json=True)
    worker = laboratory.worker()
    laboratory.wait_applied(len(log))
    assert worker.end() == 0
    occupancy, flow = recount(log)
    database = laboratory.settings.clickhouse.database
    assert {
        (row[0], row[1], row[2]): (row[3], row[4])
        for row in laboratory.query(
            f"SELECT window, replica, medium, entries, blocks FROM {database}.occupancy_10s FINAL"
        )
    } == occupancy
    assert {
        (row[0], row[1], row[2]): (row[3], row[4])
        for row in laboratory.query(
            f"SELECT window, replica, medium, stored_blocks, removed_blocks FROM {database}.flow_10s FINAL"
        )
    } == flow
    assert len(laboratory.table("sources")) == 5
    assert laboratory.verified()


def test_retention_before_the_first_start_and_ahead_of_a_stopped_worker(
    broker: EmbeddedBroker, store: EmbeddedStore, new_laboratory: Make, generated: Make
) -> None:
    laboratory = new_laboratory(broker, store)
    log = generated(3, replicas=1, rounds=40, began=time.time() - 600)
    laboratory.produce(log[:20])
    laboratory.remove_before(log[0].replica, 5)
    worker = laboratory.worker()
    laboratory.wait_applied(20)
    assert worker.end() == 0
    assert "retention" not in worker.said()

    laboratory.produce(log[20:])
    laboratory.remove_before(log[0].replica, 30)
    worker = laboratory.worker()
    laboratory.wait_applied(40)
    assert worker.end() == 0
    [line] = [line for line in worker.said().splitlines() if "retention removed records" in line]
    assert "first=20 last=29" in line
    assert "records=10" in line
    # What is left of the log does not say what the rows should be; that is no difference.
    assert laboratory.verified()
