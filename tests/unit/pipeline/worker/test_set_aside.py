"""Records that cannot be applied: set aside once, with a reason, at the cost of nobody but their source."""

from __future__ import annotations

import math
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import msgspec
import pytest

from connectors.kafka.encoding import JSON
from pipeline.applying.offered import Offered
from pipeline.applying.steps import at_once
from pipeline.errors import RecordFatal
from pipeline.reading.plain_runs import PlainRun
from pipeline.worker.checkpoint.log import Record
from pipeline.worker.exits import ExitCode, exit_code
from pipeline.worker.roles.replica import ReplicaRole
from pipeline.worker.set_aside import BYTES_OF_CHECKPOINT
from pipeline.worker.telemetry import WorkerMetrics
from schemas.events import Batch, EngineCounters, EventsRecord, Gap, Stored
from schemas.reasons import SetAsideReason
from schemas.rows import Row
from schemas.set_aside import KEPT_BYTES, SetAsideRecord
from schemas.settings import Settings
from tests.support.client_partition import client_partition
from tests.support.inputs.event_records import sent
from tests.support.inputs.packed import packed
from tests.support.owned_partition import owned_partition

START = 1_800_000_000.0
PARTITION = client_partition("honest", 2)
"""Where `bad` belongs as well, and `stranger` does not."""
"""Of two: that of all replicas here but `other`."""
encode = msgspec.msgpack.encode


def run(replica: str, seq: int, **fields: Any) -> EventsRecord:
    said = sent(seq, START + seq, Stored(packed(seq + 1), 16, 16), replica=replica)
    return msgspec.structs.replace(said, **fields)


def notice(event: Any, at: float = START) -> list[Batch]:
    return [Batch(None, at, START, [event])]


class Partition:
    """A partition with an honest source and one that turns bad, and what its transactions hold."""

    def __init__(self, latest: Mapping[bytes, bytes] = MappingProxyType({}), committed: int = 0) -> None:
        self.metrics = WorkerMetrics()
        role = ReplicaRole(Settings(), shards=8, partitions=2)
        self.owned = owned_partition(role, self.metrics, PARTITION, latest, committed=committed)
        self.records: list[Record] = []
        self.rows: list[Row] = []

    def offer(self, *values: bytes | None, key: bytes | None = None, is_json: bool = False) -> None:
        headers = (("content-type", JSON),) if is_json else ()
        for value in values:
            self.owned.offer_all([Offered(self.owned.state.next_offset, value, headers, key, START)])

    def cut(self) -> list[SetAsideRecord]:
        cut, records = at_once(self.owned.cutting(START))
        self.rows, self.records = cut.rows, records
        return [
            msgspec.msgpack.decode(record.value, type=SetAsideRecord)
            for record in records
            if record.topic == "kvlens.set.aside.v1"
        ]

    def counted(self, reason: str) -> float | None:
        labels = {"agent": "replica", "reason": reason}
        return self.metrics.registry.get_sample_value("kvlens_worker_records_set_aside_total", labels)

    def trusts(self) -> set[tuple[str, str]]:
        return {(row.replica, row.trust) for row in self.rows}

    def undecodable(self) -> dict[str, int]:
        rows = [row for row in self.rows if row.TABLE == "stream_health_10s"]
        return {row.replica: row.undecodable_events for row in rows}


def two_sources() -> Partition:
    partition = Partition()
    partition.offer(encode(run("honest", 0)), encode(run("bad", 0)))
    return partition


DEEP = encode({"replica": "bad", "dp_rank": 0, "later": msgspec.Raw(b"\x91" * 100_000 + b"\xc0")})
CASES: dict[str, tuple[bytes | None, SetAsideReason]] = {
    "no value": (None, "no_value"),
    "no bytes": (b"", "malformed"),
    "no MessagePack": (b"\xc1", "malformed"),
    "two bytes too many": (encode(run("bad", 1)) + b"\xc0\xc0", "malformed"),
    "another shape": (encode([1, 2]), "not_a_record"),
    "a field is missing": (encode({"replica": "bad", "dp_rank": 0}), "not_a_record"),
    "text that is not UTF-8": (encode(run("bad", 1)).replace(b"\xa1m", b"\xa1\xff"), "invalid_utf8"),
    "100,000 deep": (DEEP, "too_deep"),
    "time NaN": (encode(run("bad", 1, batches=[Batch(1, math.nan, START, [])])), "not_a_record"),
    "time without end": (encode(run("bad", 1, batches=[Batch(1, math.inf, START, [])])), "not_a_record"),
    "received in 5138": (encode(run("bad", 1, batches=[Batch(1, START, 1e11, [])])), "not_a_record"),
    "number beyond int64": (encode(run("bad", 1, batches=[Batch(2**63, START, START, [])])), "not_a_record"),
    "negative number": (encode(run("bad", 1, duplicates=-1)), "not_a_record"),
    "life in the far future": (encode(run("bad", 1, incarnation=2**63)), "not_a_record"),
    "fingerprint": (encode(run("bad", 1, last_fingerprint=2**32)), "not_a_record"),
    "name of 5 MB": (encode(run("bad", 1, model="m" * 5_000_000)), "not_a_record"),
    "block size": (encode(run("bad", 1, batches=notice(EngineCounters(block_size=2**33)))), "not_a_record"),
    "notice in 5138": (encode(run("bad", 1, batches=notice(EngineCounters(), 1e11))), "bad_time"),
    "notice before the epoch": (encode(run("bad", 1, batches=notice(EngineCounters(), -1.0))), "bad_time"),
    "gap backwards": (encode(run("bad", 1, batches=notice(Gap(5, 4, "replay_holes")))), "backward_gap"),
}


@pytest.mark.parametrize("name", CASES)
def test_what_cannot_be_applied_is_set_aside_and_degrades_its_source_only(name: str) -> None:
    value, reason = CASES[name]
    partition, alone = two_sources(), two_sources()
    partition.offer(value, key=b"bad")
    letters = partition.cut()
    alone.cut()
    assert [(letter.topic, letter.partition, letter.offset) for letter in letters] == [
        ("kvlens.events.v1", PARTITION, 2)
    ]
    letter = letters[0]
    assert (letter.reason, letter.replica, letter.written_at) == (reason, "bad", START)
    assert letter.length == len(value or b"")
    assert letter.value == (value or b"")[:KEPT_BYTES]
    assert partition.counted(reason) == 1
    assert partition.owned.state.next_offset == 3
    assert partition.trusts() == {("honest", "complete"), ("bad", "degraded")}
    assert partition.undecodable() == {"honest": 0, "bad": 1}
    for row in alone.rows:
        assert row in partition.rows or row.replica == "bad"


def test_it_is_in_one_transaction_only_that_of_the_offset_behind_it() -> None:
    partition = two_sources()
    assert partition.cut() == []
    partition.offer(b"\xc1")
    assert len(partition.cut()) == 1
    partition.offer(encode(run("bad", 1)))
    assert partition.cut() == []


def test_a_record_that_names_nobody_costs_nobody_anything() -> None:
    partition = two_sources()
    partition.offer(b"\xc1", encode(run("unknown", 0, duplicates=-1)))
    assert [letter.replica for letter in partition.cut()] == [None, "unknown"]
    assert partition.trusts() == {("honest", "complete"), ("bad", "complete")}
    assert len(partition.owned.state.sources) == 2


def test_a_key_names_every_rank_of_its_replica() -> None:
    partition = two_sources()
    partition.offer(encode(run("bad", 0, dp_rank=1)))
    partition.offer(b"\xc1", key=b"bad")
    partition.cut()
    assert partition.undecodable() == {"honest": 0, "bad": 1}
    degraded = {(row.replica, row.dp_rank) for row in partition.rows if row.trust == "degraded"}
    assert degraded == {("bad", 0), ("bad", 1)}


def test_a_record_in_a_partition_of_others_is_of_nobody_there() -> None:
    partition = two_sources()
    partition.offer(encode(run("stranger", 0)))
    assert [(letter.reason, letter.replica) for letter in partition.cut()] == [
        ("wrong_partition", "stranger")
    ]
    assert {replica for replica, _ in partition.trusts()} == {"honest", "bad"}


def test_batches_of_a_record_set_aside_are_lost() -> None:
    partition = two_sources()
    partition.offer(encode(run("bad", 1, duplicates=-1)), encode(run("bad", 2)))
    partition.cut()
    (health,) = [row for row in partition.rows if row.TABLE == "stream_health_10s" and row.replica == "bad"]
    assert (health.lost_batches, health.undecodable_events, health.last_seq) == (1, 1, 2)


def test_json_is_set_aside_as_well() -> None:
    partition = two_sources()
    deep = b'{"replica": "bad", "later": ' + b"[" * 100_000
    partition.offer(
        b"{", b'{"replica": "\xff"}', deep, msgspec.json.encode(run("bad", 1, duplicates=-1)), is_json=True
    )
    reasons = [letter.reason for letter in partition.cut()]
    assert reasons == ["malformed", "invalid_utf8", "too_deep", "not_a_record"]


def test_whoever_goes_on_after_a_kill_sets_aside_only_what_was_not_committed() -> None:
    behind_bases = [encode(run("honest", 1)), b"\xc1", encode(run("bad", 1))]
    killed = Partition()
    topic = killed.owned.role.checkpoints
    latest = {}
    for values, set_aside in ([encode(run("honest", 0)), encode(run("bad", 0))], 0), (behind_bases, 1):
        killed.offer(*values)
        assert len(killed.cut()) == set_aside
        latest |= {record.key: record.value for record in killed.records if record.topic == topic}
    partition = Partition(latest, committed=5)
    assert partition.owned.state.next_offset == 2, "the bases of the first cut"
    partition.offer(*behind_bases)
    assert not partition.cut()
    assert partition.counted("malformed") is None
    partition.offer(b"\xc1")
    assert [record.offset for record in partition.cut()] == [5]


def test_bytes_are_kept_up_to_a_bound() -> None:
    partition = Partition()
    large = b"\xc1" * (KEPT_BYTES + 1)
    count = BYTES_OF_CHECKPOINT // KEPT_BYTES + 3
    partition.offer(*[large] * count)
    letters = partition.cut()
    assert [letter.length for letter in letters] == [len(large)] * count
    assert [len(letter.value) for letter in letters[-4:]] == [KEPT_BYTES, 0, 0, 0]
    partition.offer(large)
    assert len(partition.cut()[0].value) == KEPT_BYTES, "the next checkpoint has room again"


def test_what_no_check_foresaw_names_the_record(monkeypatch: pytest.MonkeyPatch) -> None:
    partition = two_sources()

    def fail(record: EventsRecord | PlainRun, offset: int = 0) -> None:
        raise ZeroDivisionError

    for source in partition.owned.state.sources.values():
        monkeypatch.setattr(source, "apply", fail)
        monkeypatch.setattr(source, "apply_run", fail)
    with pytest.raises(RecordFatal, match=rf"offset 2 of kvlens\.events\.v1\[{PARTITION}\]") as raised:
        partition.offer(encode(run("bad", 1)))
    assert isinstance(raised.value.__cause__, ZeroDivisionError)
    assert exit_code(raised.value) == ExitCode.INTERNAL
