"""What the replica agent tells the residency topic is what the events say, wherever it was cut or killed."""

from __future__ import annotations

import random
from typing import Any

import msgspec
import pytest

from pipeline.residency.partition import PartitionState
from pipeline.verify.findings import Findings
from pipeline.verify.fleet.topic_check import TopicCheck
from pipeline.verify.source import SourceRecount
from schemas.events import EventsRecord
from schemas.residency import EVICTED, ResidencyRecord
from schemas.settings import Worker
from tests.pipeline.verify.walks import Walk

SHARDS = 2
decode = msgspec.msgpack.Decoder(ResidencyRecord).decode


def told(records: list[EventsRecord], worker: Worker, seed: int) -> list[ResidencyRecord]:
    """Return what a worker commits that saves now and then, is killed now and then, and saves at the end."""
    rng = random.Random(seed)
    committed: list[ResidencyRecord] = []
    latest: dict[bytes, bytes] = {}
    state = PartitionState(0, worker, shards=SHARDS)
    while state.next_offset < len(records):
        state.apply(state.next_offset, records[state.next_offset])
        if rng.random() < 0.05:
            state = PartitionState.restore(0, worker, shards=SHARDS, latest=latest)
        elif rng.random() < 0.2 or state.next_offset == len(records):
            cut = state.cut(0.0)
            latest.update(cut.checkpoints)
            committed += [
                msgspec.msgpack.decode(value, type=ResidencyRecord) for _, _, value in cut.residency
            ]
    return committed


def compared(records: list[EventsRecord], residency: list[ResidencyRecord], worker: Worker) -> Findings:
    recount = SourceRecount("r", 0, worker)
    for offset, record in enumerate(records):
        recount.apply(offset, record)
    check, findings = TopicCheck(), Findings()
    check.said(0, len(records), recount.told())
    for record in residency:
        check.apply(record)
    check.finish(findings)
    return findings


@pytest.mark.parametrize("scope", ["gpu", "all"])
@pytest.mark.parametrize("hybrid", [False, True], ids=["plain", "hybrid"])
@pytest.mark.parametrize("seed", range(6))
def test_the_topic_tells_what_the_events_say(seed: int, hybrid: bool, scope: Any) -> None:
    worker = Worker(clear_scope=scope, fine_block_age_seconds=60.0)
    records = list(Walk(seed, hybrid=hybrid).records(120))
    residency = told(records, worker, seed)
    findings = compared(records, residency, worker)
    assert findings.equal, findings.kept[:3]
    assert findings.compared["residency"] > 1


def test_a_change_that_is_missing_twice_or_altered_is_found() -> None:
    worker = Worker()
    records = list(Walk(1).records(60))
    residency = told(records, worker, 1)
    assert not compared(records, residency[:-1], worker).equal
    assert not compared(records, [*residency, residency[-1]], worker).equal
    pool = residency[-1].sources[0].changes[0]
    pool.roots = pool.depths = b""  # there is one of each for a fill
    pool.kinds = bytes(EVICTED if kind != EVICTED else 0 for kind in pool.kinds)
    assert not compared(records, residency, worker).equal
