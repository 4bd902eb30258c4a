"""Agent and recount share no code: over random logs, cut and restored anywhere, they agree on every row."""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from datetime import datetime, timezone
from typing import Any

import msgspec
import pytest

from pipeline.kafka.refusal import RecordRefused, SourceName
from pipeline.residency.partition import PartitionState
from pipeline.verify.findings import BEFORE_THE_BEGINNING, TOO_NEW, Findings
from pipeline.verify.keys import key_of
from pipeline.verify.replica.check import SourceCheck
from schemas.events import Cleared, EventsRecord, Opened, SourceStatus, Stored, Undecodable
from schemas.rows import FlowRow, ObjectsRow, OccupancyRow, StreamHealthRow
from schemas.settings import Worker
from tests.support.inputs.event_records import batch, notice, opened, record, sent
from tests.support.inputs.packed import packed
from tests.support.inputs.source_walks import ObjectWalk, Walk, with_wrong_clocks
from tests.support.suite.night import at_night, first_by_day, night_rows

LONG_AGO = datetime(1970, 1, 1, tzinfo=timezone.utc)


class Store:
    """A ReplacingMergeTree."""

    def __init__(self) -> None:
        self.rows: dict[Any, Any] = {}

    def insert(self, rows: Iterable[Any]) -> None:
        for row in rows:
            known = self.rows.get(key_of(row))
            if known is None or row.version >= known.version:
                self.rows[key_of(row)] = row


REFUSED = RecordRefused("malformed", "", (SourceName("r", None),))
Log = Sequence[EventsRecord | RecordRefused]


def written(records: Log, worker: Worker, seed: int) -> Store:
    """Rows of a worker that saves now and then, is killed now and then, and may lose its checkpoints once."""
    rng = random.Random(seed)
    store, latest = Store(), {}
    state = PartitionState(0, worker, shards=2)
    offset = saved = 0
    newest = 0.0
    to_lose = rng.random() < 0.7
    while offset < len(records):
        said = records[offset]
        if isinstance(said, RecordRefused):
            state.set_aside(offset, said)
        else:
            newest = max([newest, *(one.received_at for one in said.batches)])
            state.apply(offset, said)
        offset += 1
        killed = rng.random() < 0.05
        if rng.random() < 0.3:
            cut = state.cut(newest + rng.choice([0.0, 0.0, 100.0]))
            store.insert(cut.rows)
            if cut.dirty and not killed:
                latest.update(cut.checkpoints)
                saved = offset
        if killed:
            if to_lose and offset > len(records) / 2:
                latest, to_lose = {}, False
            state = PartitionState.restore(0, worker, shards=2, latest=latest)
            if not latest:
                state.note_committed(saved)
            offset = state.next_offset
    for _ in range(2):  # what is carried comes after what changed
        store.insert(state.cut(newest + 50.0).rows)
    return store


def cut_at_the_end(records: Sequence[EventsRecord], worker: Worker) -> Store:
    """Rows of a worker that saves when it has applied everything."""
    store, state = Store(), PartitionState(0, worker, shards=2)
    newest = 0.0
    for offset, said in enumerate(records):
        newest = max([newest, *(one.received_at for one in said.batches)])
        state.apply(offset, said)
    for _ in range(2):
        store.insert(state.cut(newest + 50.0).rows)
    return store


def compared(
    records: Log,
    store: Store,
    worker: Worker,
    *,
    begin: int = 0,
    end: int | None = None,
    committed: int | None = None,
) -> Findings:
    """`begin` and `end`: what of the log there is."""
    end = len(records) if end is None else end
    findings = Findings()
    check = SourceCheck(
        ("r", 0),
        worker,
        store.rows.values(),
        findings,
        committed=end if committed is None else committed,
        whole=begin == 0,
        oldest=LONG_AGO,
    )
    known = False
    for offset in range(begin, end):
        said = records[offset]
        if not isinstance(said, RecordRefused):
            check.apply(offset, said)
            known = True
        elif known:
            check.set_aside(offset)
    check.finish(begin, end)
    return findings


@pytest.mark.parametrize("scope", first_by_day(["gpu", "all"]))
@pytest.mark.parametrize("hybrid", [False, True], ids=["plain", "hybrid"])
@pytest.mark.parametrize("seed", first_by_day(range(6)))
def test_agent_and_recount_agree(seed: int, hybrid: bool, scope: Any) -> None:
    worker = Worker(clear_scope=scope, fine_block_age_seconds=60.0, idle_carry_seconds=30.0)
    records = list(Walk(seed, hybrid=hybrid).records(80))
    findings = compared(records, written(records, worker, seed), worker)
    assert findings.equal, findings.kept[:3]
    assert all(
        findings.compared[table] > 10 for table in ("occupancy_10s", "flow_10s", "stream_health_10s")
    ), findings.compared
    assert not findings.left_out


@pytest.mark.parametrize("most", first_by_day([7, 400_000]))
@pytest.mark.parametrize("seed", first_by_day(range(30, 33)))
def test_agent_and_recount_agree_on_objects(seed: int, most: int) -> None:
    worker = Worker(idle_carry_seconds=30.0, max_itemised_blocks=most, max_pool_sizes=3 if most == 7 else 256)
    records = list(ObjectWalk(seed).records(80))
    store = written(records, worker, seed)
    findings = compared(records, store, worker)
    assert findings.equal, findings.kept[:3]
    assert not findings.left_out
    rows = [row for row in store.rows.values() if isinstance(row, ObjectsRow)]
    assert len(rows) == findings.compared["objects_10s"] > 20
    for figure in ("accesses", "hits", "first_accesses", "unknown_accesses", "stored_objects", "bytes"):
        assert any(getattr(row, figure) for row in rows), figure
    assert any(row.unlisted_objects for row in rows) == (most == 7)


@pytest.mark.parametrize("seed", at_night(range(36, 38)))
def test_of_a_log_without_its_beginning_objects_are_compared_from_the_next_life_on(seed: int) -> None:
    worker = Worker(idle_carry_seconds=30.0)
    records = list(ObjectWalk(seed).records(120))
    findings = compared(records, written(records, worker, seed), worker, begin=len(records) // 3)
    assert findings.equal, findings.kept[:3]
    assert findings.left_out[BEFORE_THE_BEGINNING]


@pytest.mark.parametrize("hybrid", [*at_night([False]), True], ids=["plain", "hybrid"])
@pytest.mark.parametrize("seed", first_by_day(range(10, 15)))
def test_wrong_clocks_are_no_difference_and_cuts_decide_no_row(seed: int, hybrid: bool) -> None:
    worker = Worker(fine_block_age_seconds=60.0, idle_carry_seconds=30.0)
    records = list(with_wrong_clocks(Walk(seed, hybrid=hybrid).records(60), seed))
    store = written(records, worker, seed)
    findings = compared(records, store, worker)
    assert findings.equal, findings.kept[:3]
    assert not findings.left_out
    undisturbed = cut_at_the_end(records, worker)
    assert undisturbed.rows.items() <= store.rows.items()


@pytest.mark.parametrize("heard", [False, True], ids=["never heard", "heard"])
def test_reports_by_a_clock_that_is_set_back_take_no_row_away(heard: bool) -> None:
    worker, at = Worker(idle_carry_seconds=30.0), 1_800_000_000.0
    heard_once = record(*[batch(0, at, Stored(bytes(8), 16, 16))] * heard)
    reports = [record(notice(at + later, SourceStatus(connected=False))) for later in (600, 10, 30)]
    records = [heard_once, *reports]
    store = cut_at_the_end(records, worker)
    findings = compared(records, store, worker)
    assert findings.equal, findings.kept[:3]
    ends = [row.window.timestamp() - at for row in store.rows.values() if isinstance(row, StreamHealthRow)]
    assert max(ends) == 600


@pytest.mark.parametrize("seeds", first_by_day([range(1), range(1, 4)]), ids=["one", "more"])
@pytest.mark.parametrize(
    ("limit", "most", "hybrid"),
    [
        ("max_pool_sizes", 1, False),
        ("max_blocks", 30, True),
        ("max_itemised_blocks", 12, True),
        *night_rows(
            ("max_pool_sizes", 2, True), ("max_blocks", 30, False), ("max_itemised_blocks", 1, False)
        ),
    ],
)
def test_agent_and_recount_leave_out_the_same(
    limit: str, most: int, hybrid: bool, seeds: Sequence[int]
) -> None:
    worker = Worker(fine_block_age_seconds=60.0, idle_carry_seconds=30.0, **{limit: most})
    left_out = 0
    for seed in seeds:
        records = list(Walk(seed, hybrid=hybrid).records(60))
        findings = compared(records, written(records, worker, seed), worker)
        assert findings.equal, findings.kept[:3]
        free = written(records, msgspec.structs.replace(worker, **{limit: 10_000}), seed)
        left_out += not compared(records, free, worker).equal
    assert left_out, "the limit decides nothing here"


@pytest.mark.parametrize("seed", first_by_day(range(6)))
def test_records_set_aside_are_no_difference(seed: int) -> None:
    """They are anywhere: before the source is known, at the end of a life, one after the other."""
    worker, rng = Worker(fine_block_age_seconds=60.0, idle_carry_seconds=30.0), random.Random(seed)
    log: list[EventsRecord | RecordRefused] = []
    for said in Walk(seed, hybrid=seed % 2 == 0).records(80):
        log += [said, *[REFUSED] * rng.choice([0, 0, 0, 1, 3])]
        if rng.random() < 0.1:
            log[-1] = REFUSED
    findings = compared(log, written(log, worker, seed), worker)
    assert findings.equal, findings.kept[:3]
    assert findings.compared["stream_health_10s"] > 10
    assert not findings.left_out


@pytest.mark.parametrize("seed", first_by_day(range(6)))
def test_a_working_fleet_is_no_difference(seed: int) -> None:
    """The worker was behind the log when it was asked, and ahead of what was read in the end."""
    worker = Worker(idle_carry_seconds=30.0)
    records = list(Walk(seed).records(80))
    behind = written(records[:50], worker, seed)
    findings = compared(records, behind, worker, committed=50)
    assert findings.equal, findings.kept[:3]
    assert not findings.left_out
    ahead = written(records, worker, seed)
    findings = compared(records, ahead, worker, end=50, committed=40)
    assert findings.equal, findings.kept[:3]
    assert findings.left_out[TOO_NEW] > 0
    late = compared(records, behind, worker)
    assert {one.kind for one in late.kept} >= {"missing", "older"}


@pytest.mark.parametrize("seed", first_by_day(range(5)))
def test_a_log_without_its_beginning_is_compared_from_the_next_life_on(seed: int) -> None:
    worker = Worker(idle_carry_seconds=30.0)
    records = list(Walk(seed).records(150))
    store = written(records, worker, seed)
    findings = compared(records, store, worker, begin=30)
    assert findings.equal, findings.kept[:3]
    assert findings.left_out[BEFORE_THE_BEGINNING] > 0
    begun = [
        number
        for number, said in enumerate(records)
        if number > 30 and said.batches and any(isinstance(event, Opened) for event in said.batches[0].events)
    ]
    assert not begun or begun[0] > 140 or findings.compared["occupancy_10s"] > 0
    # A wrong figure of the last life is still found. Storage may hold what is left of lives before.
    if findings.compared["occupancy_10s"]:
        certain = [
            key for key, row in store.rows.items() if isinstance(row, OccupancyRow) and row.medium == "gpu"
        ]
        key = max(certain, key=lambda key: key[1])
        store.rows[key] = msgspec.structs.replace(store.rows[key], entries=store.rows[key].entries + 1)
        assert compared(records, store, worker, begin=30).differing == {"occupancy_10s": 1}


def test_a_log_that_begins_between_the_notices_of_a_life_and_its_first_batch_is_equal() -> None:
    at = 1_800_000_000.0
    status = record(notice(at, SourceStatus(connected=True)))
    records = [status, sent(0, at + 5, Stored(packed(1), 16))]
    store = written(records, Worker(), 1)
    findings = compared(records, store, Worker(), begin=1)
    assert findings.equal, findings.kept
    assert findings.compared["sources"] == 1
    assert compared(records, store, Worker()).equal


def test_a_clear_and_two_restarts_in_one_window_leave_every_trust_behind() -> None:
    worker, at, stored = Worker(), 1_800_000_000.0, Stored(packed(1), 16, 16)
    second = batch(0, at + 5, stored), batch(1, at + 5, stored, Undecodable("unknown_type"))
    records = [
        record(opened(at + 1), batch(0, at + 5, stored, Cleared()), life=1),
        record(opened(at + 2), *second, life=2),
        record(opened(at + 3), batch(0, at + 5, stored), life=3),
    ]
    store = written(records, worker, 1)
    assert compared(records, store, worker).equal
    [flow] = [row for row in store.rows.values() if isinstance(row, FlowRow)]
    assert flow.trust == "degraded"
