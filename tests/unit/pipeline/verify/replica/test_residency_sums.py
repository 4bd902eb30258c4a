"""What the replica agent tells the residency topic is what the events say, wherever it was cut or killed."""

from __future__ import annotations

import random
from typing import Any

import pytest

from pipeline.residency.partition import PartitionState
from pipeline.verify.findings import Findings
from pipeline.verify.fleet.beginning.undoing import Beginning
from pipeline.verify.fleet.topic_check import TopicCheck
from pipeline.verify.replica.check import SourceCheck
from pipeline.verify.times import EPOCH
from schemas.events import EventsRecord
from schemas.residency import EVICTED, ResidencyRecord
from schemas.settings import Worker
from tests.support.inputs.source_walks import Walk
from tests.support.replica_agent import residency_of
from tests.support.suite.night import first_by_day


def committed_residency(records: list[EventsRecord], worker: Worker, seed: int) -> list[ResidencyRecord]:
    """Return what a worker commits that saves now and then, is killed now and then, and saves at the end."""
    rng = random.Random(seed)
    committed: list[ResidencyRecord] = []
    latest: dict[bytes, bytes] = {}
    state = PartitionState(0, worker, shards=2)
    while state.next_offset < len(records):
        state.apply(state.next_offset, records[state.next_offset])
        if rng.random() < 0.05:
            state = PartitionState.restore(0, worker, shards=2, latest=latest)
        elif rng.random() < 0.2 or state.next_offset == len(records):
            cut = state.cut(0.0)
            latest.update(cut.checkpoints)
            committed += residency_of(cut)
    return committed


def compared(
    records: list[EventsRecord],
    residency: list[ResidencyRecord],
    worker: Worker,
    *,
    committed: int | None = None,
    unreadable: str | None = None,
    beginning: Beginning | None = None,
) -> Findings:
    """`committed`: what the replica agent had committed when it was asked; the log went on. `beginning`: what
    is known of a shard whose first records are gone."""
    committed = len(records) if committed is None else committed
    findings = Findings()
    source = SourceCheck(("r", 0), worker, (), Findings(), committed=committed, whole=True, oldest=EPOCH)
    for offset, record in enumerate(records):
        source.apply(offset, record)
    source.finish(0, len(records))
    check = TopicCheck()
    check.expect(0, committed, source.residency_sums)
    for record in residency:
        check.apply(record)
    if beginning is not None:
        check.begins_later(beginning)
    check.finish(findings, unreadable=unreadable)
    return findings


@pytest.mark.parametrize("scope", ["gpu", "all"])
@pytest.mark.parametrize("hybrid", [False, True], ids=["plain", "hybrid"])
@pytest.mark.parametrize("seed", first_by_day(range(6)))
def test_the_topic_tells_what_the_events_say(seed: int, hybrid: bool, scope: Any) -> None:
    worker = Worker(clear_scope=scope, fine_block_age_seconds=60.0)
    records = list(Walk(seed, hybrid=hybrid).records(120))
    residency = committed_residency(records, worker, seed)
    findings = compared(records, residency, worker)
    assert findings.equal, findings.kept[:3]
    assert findings.compared["residency"] > 1


def test_a_change_that_is_missing_twice_or_altered_is_found() -> None:
    worker = Worker()
    records = list(Walk(1).records(60))
    residency = committed_residency(records, worker, 1)
    assert not compared(records, residency[:-1], worker).equal
    assert not compared(records, [*residency, residency[-1]], worker).equal
    pool = residency[-1].sources[0].changes[0]
    pool.roots = pool.depths = b""  # there is one of each for a fill
    pool.kinds = bytes(EVICTED if kind != EVICTED else 0 for kind in pool.kinds)
    assert not compared(records, residency, worker).equal


@pytest.mark.parametrize("hybrid", [False, True], ids=["plain", "hybrid"])
@pytest.mark.parametrize("seed", first_by_day(range(6)))
def test_what_comes_behind_the_commit_is_not_expected_before_it(seed: int, hybrid: bool) -> None:
    """The log went on while it was read, and the topic too."""
    worker = Worker()
    records = list(Walk(seed, hybrid=hybrid).records(120))
    residency = committed_residency(records, worker, seed)
    offsets = sorted({record.next_offset for record in residency})
    for committed in offsets[len(offsets) // 4 :: len(offsets) // 4]:
        findings = compared(records, residency, worker, committed=committed)
        assert findings.equal, findings.kept[:3]
        assert findings.compared["residency"] > 0


def test_records_that_cannot_be_read_yet_make_pools_late_not_different() -> None:
    worker = Worker()
    records = list(Walk(1).records(60))
    residency = committed_residency(records, worker, 1)
    hidden = [record for record in residency[-3:] if record.shard == 1]
    assert hidden
    readable = [record for record in residency if record not in hidden]
    late = compared(records, readable, worker, unreadable="why")
    assert late.verdict == "late"
    assert not late.kept
    assert late.late["residency", "why"] >= 1
    assert (
        late.late["residency", "why"] + late.compared["residency"]
        == compared(records, residency, worker).compared["residency"]
    )
    # Without a reason it is a difference.
    assert compared(records, readable, worker).verdict == "different"
    # What records that are missing do not explain differs all the same.
    twice = [*residency, residency[-1]]
    assert compared(records, twice, worker, unreadable="why").verdict == "different"


def test_a_pool_that_no_event_has_is_found_where_the_beginning_is_gone_too() -> None:
    records = list(Walk(1).records(60))
    residency = committed_residency(records, Worker(), 1)
    pool = next(pool for record in residency for source in record.sources for pool in source.changes)
    pool.medium = "nowhere"
    found = compared(records, residency, Worker(), beginning=Beginning(since=1.0))
    assert [one.key["medium"] for one in found.kept if one.kind == "unexpected"] == ["nowhere"]


def test_content_that_differs_is_said_in_words() -> None:
    """As many changes of each kind, of other blocks: sums of hashes would say nothing to a person."""
    worker = Worker()
    records = list(Walk(1).records(60))
    residency = committed_residency(records, worker, 1)
    pool = next(pool for record in residency for source in record.sources for pool in source.changes)
    pool.hashes = bytes(byte ^ 1 for byte in pool.hashes)
    [difference] = compared(records, residency, worker).kept
    assert (difference.expected, difference.found) == ({}, {})
    assert "the changes differ in content: which blocks, when, of what size, or tokens stored before" in (
        difference.remarks
    )
