"""What an owned partition does with each record: apply, leave out and count, or refuse."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from connectors.kafka.encoding import JSON, MSGPACK
from pipeline.applying.offered import Offered
from pipeline.applying.steps import at_once
from pipeline.errors import CheckpointUnreadable, OffsetGap
from pipeline.worker.partition import OwnedPartition
from pipeline.worker.roles.fleet import FleetRole
from pipeline.worker.roles.replica import ReplicaRole
from pipeline.worker.telemetry import WorkerMetrics
from schemas.checkpoints import BASE, FORMAT, META_KEY, part_slot, slot_key
from schemas.events import EventsRecord, Gap, SourceStatus, Stored
from schemas.fleet_rows import RedundancyRow
from schemas.json_form import to_json
from schemas.residency import FILLED
from schemas.settings import Settings
from tests.support.inputs import event_records
from tests.support.inputs.event_records import batch, notice, opened, sent
from tests.support.inputs.packed import packed
from tests.support.inputs.residency_records import record as residency_record
from tests.support.owned_partition import owned_partition


def record(seq: int) -> EventsRecord:
    return sent(seq, 1e9 + seq, Stored(packed(seq + 1), 16, 16))


def offered(*seqs: int, **more: Any) -> list[Offered]:
    return [Offered(seq, msgspec.msgpack.encode(record(seq)), **more) for seq in seqs]


def owned(heard: int = 0) -> tuple[OwnedPartition[Any, Any], WorkerMetrics]:
    metrics = WorkerMetrics()
    return owned_partition(ReplicaRole(Settings(), shards=8), metrics, heard=heard), metrics


def skipped(metrics: WorkerMetrics, reason: str) -> float | None:
    labels = {"agent": "replica", "reason": reason}
    return metrics.registry.get_sample_value("kvlens_worker_records_skipped_total", labels)


def test_both_encodings_are_applied() -> None:
    partition, _ = owned()
    partition.offer_all([Offered(0, msgspec.msgpack.encode(record(0)), (("content-type", MSGPACK),))])
    headers = (("ce_id", b"x"), ("content-type", JSON))
    partition.offer_all([Offered(1, to_json(record(1)), headers)])
    partition.offer_all(offered(2))
    [occupancy] = [row for row in at_once(partition.cutting(1e9))[0].rows if row.TABLE == "occupancy_10s"]
    assert (occupancy.blocks, occupancy.version) == (3, 2)


def test_the_log_times_of_what_was_offered_are_known_until_the_cut() -> None:
    partition, _ = owned()
    assert partition.newest == 0
    partition.offer_all([*offered(0, written_at=1e9), *offered(1, written_at=1e9 + 1)])
    assert partition.newest == 1e9 + 1
    at_once(partition.cutting(2e9))
    assert partition.newest == 0
    partition.offer_all(offered(2, written_at=1e9 + 2))
    assert partition.newest == 1e9 + 2


def test_an_idle_partition_is_not_read_to_a_time_that_the_log_has_yet_to_reach() -> None:
    """The worker's clock is five seconds ahead of the broker's."""
    partition, _ = owned()

    def read_to(brokers: float) -> float:
        at_once(partition.cutting(brokers + 5.0))
        return float(partition.state._read_to - 1e9)

    partition.offer_all(offered(0, written_at=1e9))
    assert [read_to(1e9 + at) for at in (0.5, 2.5, 4.5, 6.5)] == [0.0, 0.0, 2.0, 4.0]
    read_to(1e9 + 100)
    assert read_to(1e9 + 102) == 105.0, "one that no source writes to any more holds nobody up"


def test_what_waits_for_a_cut_is_known_by_its_bytes() -> None:
    partition, _ = owned()
    partition.offer_all(offered(0, 1))
    partition.offer_all([*offered(1, 2), Offered(3, None)])
    assert partition.unsaved == sum(len(one.value or b"") for one in offered(0, 1, 2)), (
        "repeated ones change nothing"
    )
    at_once(partition.cutting(2e9))
    assert partition.unsaved == 0


def test_a_source_is_carried_forward_up_to_where_the_log_was_read() -> None:
    """Until everything is read that was there when the worker came, it may be that the rest is of it."""

    def windows(partition: OwnedPartition[Any, Any], now: float) -> list[int]:
        rows = at_once(partition.cutting(now))[0].rows
        return [int(row.window.timestamp()) for row in rows if row.TABLE == "occupancy_10s"]

    values = [msgspec.msgpack.encode(record(seq)) for seq in range(3)]
    partition, _ = owned(heard=3)
    partition.offer_all([Offered(0, values[0], written_at=1e9)])
    assert windows(partition, 1e9 + 3600) == [10**9]
    assert windows(partition, 1e9 + 3600) == []
    other = record(1)
    other.replica = "other"
    partition.offer_all([Offered(1, msgspec.msgpack.encode(other), written_at=1e9 + 25)])
    assert sorted(windows(partition, 1e9 + 3600)) == [10**9, 10**9 + 10, 10**9 + 20]
    partition.offer_all([Offered(2, values[1], written_at=1e9 + 25)])
    carried = windows(partition, 1e9 + 50) + windows(partition, 1e9 + 60)
    assert max(carried) == 10**9 + 60


def test_redundancy_is_not_carried_forward_before_all_is_applied_that_a_former_owner_had_applied() -> None:
    """Rows of windows that it never wrote would show less than it knew; behind its last record none do."""
    # A shard's first checkpoint holds no base: all of the log is applied again.
    partition = owned_partition(FleetRole(Settings(), shards=1), heard=9)

    def offer(offset: int, blocks: range) -> None:
        value = msgspec.msgpack.encode(residency_record(0, FILLED, blocks, 1e9 + offset))
        partition.offer_all([Offered(offset, value, written_at=1e9 + offset)])

    def windows(now: float) -> dict[int, int]:
        rows = [row for row in at_once(partition.cutting(now))[0].rows if isinstance(row, RedundancyRow)]
        return {int(row.window.timestamp()): row.owners_1 for row in rows}

    offer(4, range(1, 5))
    assert windows(1e9 + 45) == {10**9: 4}
    offer(8, range(5, 9))
    assert windows(1e9 + 45) == {10**9 + at: 8 for at in (0, 10, 20, 30, 40)}
    offer(11, range(9, 10))
    assert windows(1e9 + 75) == {10**9 + at: 9 for at in (10, 20, 30, 40, 50, 60, 70)}


@pytest.mark.parametrize(
    ("records", "reason"),
    [
        ({BASE: {"replica": "r", "dp_rank": 0, "trust": ["partial", 0.0]}}, "missing"),  # another layout
        ({BASE: None}, "MessagePack"),
        ({part_slot(0, 0): None}, "part 0 of the base of r/0 is missing"),
    ],
)
def test_a_checkpoint_that_cannot_be_read_is_named(records: dict[str | int, Any], reason: str) -> None:
    partition, _ = owned()
    partition.offer_all(offered(0))
    partition.leaves = True
    latest = dict(at_once(partition.cutting(1e9))[0].checkpoints)
    for slot, value in records.items():
        key = slot_key("r", 0, slot)
        assert key in latest
        if slot != BASE:
            del latest[key]
        else:
            latest[key] = b"\xc1" if value is None else msgspec.msgpack.encode(value)
    with pytest.raises(CheckpointUnreadable, match=reason) as raised:
        partition.role.restored(3, latest)
    assert str(raised.value).startswith("the checkpoint in kvlens.checkpoints.replica.v1[3] cannot be read: ")


@pytest.mark.parametrize("other", [FORMAT - 1, FORMAT + 1])
def test_a_checkpoint_of_another_format_is_refused_whatever_it_holds(other: int) -> None:
    partition, _ = owned()
    partition.offer_all(offered(0))
    latest = dict(at_once(partition.cutting(1e9))[0].checkpoints)
    assert msgspec.msgpack.decode(latest[META_KEY])["format"] == FORMAT
    latest = {META_KEY: msgspec.msgpack.encode({"format": other, "what": "else"}), b"key": b"value"}
    with pytest.raises(CheckpointUnreadable) as raised:
        partition.role.restored(3, latest)
    assert str(raised.value) == (
        f"the checkpoint in kvlens.checkpoints.replica.v1[3] cannot be read: it has format {other}, and this "
        f"kvlens reads format {FORMAT}; stop all workers and run `kvlens state rebuild` to compute it again "
        "from the log, or start the kvlens that wrote it"
    )


def test_troubles_of_sources_are_told_until_the_partition_is_given_up() -> None:
    partition, metrics = owned()
    gap = event_records.record(notice(1e9, Gap(1, 3, "replay_holes")), batch(4, 1e9 + 1))
    unreached = event_records.record(notice(1e9, SourceStatus(connected=False)), replica="s")
    late = event_records.record(opened(1e9, 7, complete=False), replica="t")
    for offset, one in enumerate((record(0), gap, unreached, late)):
        partition.offer_all([Offered(offset, msgspec.msgpack.encode(one))])
    at_once(partition.cutting(1e9))

    def troubled() -> dict[str, float]:
        return {
            sample.labels["trouble"]: sample.value
            for metric in metrics.registry.collect()
            for sample in metric.samples
            if sample.name == "kvlens_worker_troubled_sources"
        }

    assert troubled() == {"partial": 1, "degraded": 1, "disconnected": 1, "drifting": 0, "limited": 0}, (
        "of s there is no trust"
    )
    metrics.given_up("replica", 0)
    assert troubled() == {}
    metrics.given_up("replica", 0)


def test_repeated_offset_changes_nothing_and_a_hole_is_fatal() -> None:
    partition, metrics = owned()
    partition.offer_all(offered(0))
    partition.offer_all(offered(0))
    assert skipped(metrics, "repeated") == 1
    with pytest.raises(OffsetGap, match=r"1\.\.4 of"):
        partition.offer_all(offered(5))
    assert partition.state.next_offset == 1


def test_cut_ends_with_checkpoints_after_outputs() -> None:
    partition, _ = owned()
    partition.offer_all(offered(0))
    cut, records = at_once(partition.cutting(1e9))
    assert cut.next_offset == 1
    assert [entry.topic for entry in records] == [
        "kvlens.residency.v1",
        *["kvlens.checkpoints.replica.v1"] * len(cut.checkpoints),
    ]
    assert not at_once(partition.cutting(1e9))[0].dirty


def test_the_log_s_time_bounds_what_a_connector_says_of_time() -> None:
    partition, _ = owned()
    ahead = event_records.record(batch(0, 3e9, Stored(packed(1), 16, 16)))
    partition.offer_all([Offered(0, msgspec.msgpack.encode(ahead), written_at=1e9)])
    windows = {
        row.window.timestamp() for row in at_once(partition.cutting(1e9))[0].rows if hasattr(row, "window")
    }
    assert windows == {1e9}
