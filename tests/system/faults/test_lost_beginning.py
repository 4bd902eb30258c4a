"""`kvlens verify` where retention removed the beginning of the residency topic: a real broker and store."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import datetime, timedelta, timezone
from typing import Any

import msgspec
import pytest

from pipeline.local.broker.embedded import EmbeddedBroker
from pipeline.local.clickhouse.embedded import EmbeddedStore
from pipeline.verify.fleet.beginning.undoing import NO_CHECKPOINT
from schemas.events import EventsRecord
from schemas.settings import Fleet
from tests.support.inputs.generated_logs import shared_log

pytestmark = pytest.mark.night

Make = Callable[..., Any]
HORIZON = 4.0
AHEAD = 1.0
"""How far clocks of engines may be ahead: figures begin as much later, twice."""
GOES_ON_SECONDS = 55.0
"""After the beginning was lost: windows of which everything is known, after those of which it is not."""
WINDOWED = ("fills_10s", "redundancy_10s", "capacity_curve_10s", "hot_prefixes_10s")


def planted(laboratory: Any, table: str, column: str, more: int) -> None:
    """Make a figure of the newest row wrong."""
    place = f"{laboratory.settings.clickhouse.database}.{table}"
    names = "replica, dp_rank" if table == "fills_10s" else "medium"
    laboratory.command(
        f"INSERT INTO {place} SELECT * REPLACE ({column} + {more} AS {column}) FROM {place} FINAL "
        f"ORDER BY window DESC, shard, hash_domain, group_idx, {names} LIMIT 1"
    )


def postponed(record: EventsRecord, seconds: float) -> EventsRecord:
    """Return the record as if everything in it had come later."""
    replace = msgspec.structs.replace
    batches = [
        replace(batch, ts=batch.ts + seconds, received_at=batch.received_at + seconds)
        for batch in record.batches
    ]
    return replace(record, batches=batches)


def test_the_fleet_is_recounted_as_far_back_as_its_log_reaches(
    broker: EmbeddedBroker, store: EmbeddedStore, new_laboratory: Make
) -> None:
    laboratory = new_laboratory(broker, store, max_clock_ahead_seconds=AHEAD)
    laboratory.settings = msgspec.structs.replace(laboratory.settings, fleet=Fleet(horizon_seconds=HORIZON))
    laboratory.base_seconds = 2.0
    log = shared_log(11, replicas=4, rounds=45, began=time.time() - 120)
    before = [record for record in log if record.batches[-1].received_at < time.time()]
    laboratory.produce(before)
    worker = laboratory.worker()
    laboratory.wait_applied(len(before), seconds=180.0)
    laboratory.wait_followed()
    begins = laboratory.forget_residency(0.6)
    assert all(begins.values())
    # Partitions are read as far as the clock says, so what comes after has to come when it says.
    later = time.time() - log[len(before)].batches[-1].received_at
    after = [postponed(record, later) for record in log[len(before) :]]
    after = [one for one in after if one.batches[-1].received_at < time.time() + GOES_ON_SECONDS]
    laboratory.produce(after, over_seconds=GOES_ON_SECONDS)
    laboratory.wait_applied(len(before) + len(after))
    laboratory.wait_followed()
    time.sleep(2.0)  # so that a base is due at the last checkpoint
    assert worker.end() == 0

    findings = laboratory.findings()
    assert findings.equal, findings.kept[:5]
    since = findings.compared_from
    assert set(since) == set(WINDOWED), findings.left_out
    # What was written last before the beginning is not newer than that; losses are known a horizon later.
    latest = datetime.fromtimestamp(time.time(), timezone.utc) + timedelta(seconds=HORIZON + 40)
    assert since["redundancy_10s"] <= since["fills_10s"] < latest
    for table in WINDOWED[:3]:
        database = laboratory.settings.clickhouse.database
        [(behind,)] = laboratory.query(
            f"SELECT count() FROM {database}.{table} FINAL WHERE window >= '{since[table]:%Y-%m-%d %H:%M:%S}'"
        )
        assert findings.compared[table] >= behind > 20, table
    # Blocks that the checkpoint alone tells of are those that the events say.
    assert findings.compared["residency"] > 0

    wrong = (("fills_10s", "peer_blocks"), ("redundancy_10s", "owners_2"))
    for table, column in wrong:
        planted(laboratory, table, column, 1000)
    found = laboratory.findings(patience=1.0).kept
    for table, column in wrong:
        [difference] = [one for one in found if one.table == table]
        assert difference.found[column] == difference.expected[column] + 1000
        planted(laboratory, table, column, -1000)
    assert laboratory.findings().equal


def test_without_a_checkpoint_nothing_is_said_of_the_fleet(
    broker: EmbeddedBroker, store: EmbeddedStore, new_laboratory: Make
) -> None:
    laboratory = new_laboratory(broker, store)
    log = shared_log(12, replicas=3, rounds=20, began=time.time() - 600)
    laboratory.produce(log[:10])
    worker = laboratory.worker()
    laboratory.wait_applied(10, seconds=180.0)
    # Slowly, so that the residency topic gets many records.
    laboratory.produce(log[10:], over_seconds=6.0)
    laboratory.wait_applied(len(log))
    laboratory.wait_followed()
    assert worker.end() == 0
    laboratory.forget_residency(0.6)
    findings = laboratory.findings()
    assert findings.equal, findings.kept[:5]
    assert not any(findings.compared[table] for table in WINDOWED)
    assert any(NO_CHECKPOINT in reason for reason in findings.left_out), findings.left_out
