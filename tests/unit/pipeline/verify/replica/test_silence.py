"""Sources come, fall silent and come back: agent and recount forget the same ones at the same records."""

from __future__ import annotations

import random
from collections.abc import Iterable
from datetime import datetime, timezone
from typing import Any

import msgspec
import pytest

from pipeline.residency.partition import PartitionState
from pipeline.verify.findings import Findings
from pipeline.verify.fleet.topic_check import TopicCheck
from pipeline.verify.keys import key_of
from pipeline.verify.replica.check import SourceCheck
from pipeline.verify.replica.silence import Silences
from schemas.events import EventsRecord
from schemas.residency import ResidencyRecord
from schemas.rows import SourceRow
from schemas.settings import Worker
from tests.support.inputs.source_walks import BEGAN, Walk, with_wrong_clocks

LONG_AGO = datetime(1970, 1, 1, tzinfo=timezone.utc)
WORKER = Worker(fine_block_age_seconds=60.0, idle_carry_seconds=30.0, forget_seconds=600.0)
SHARDS = 2


def rotating(seed: int, *, wrong_clocks: bool) -> list[EventsRecord]:
    """A log in which one source goes on and others pause for longer than it takes to be forgotten."""
    rng = random.Random(seed)
    heard: list[tuple[float, int, EventsRecord]] = []
    for number in range(4):
        walk = Walk(seed * 10 + number, hybrid=number == 2, replica=f"r{number}")
        records: list[EventsRecord] = []
        times: list[float] = []
        for _ in range(rng.randint(2, 4) if number else 1):
            for record in walk.records(15 if number else 250):
                records.append(record)
                times.append(walk.at)
            walk.at += rng.choice([500.0, 800.0, 1500.0])
        if wrong_clocks:
            records = list(with_wrong_clocks(records, seed + number))
            times = [
                max(one.received_at for one in each.batches) if each.batches else 0.0 for each in records
            ]
            times = [max(times[: at + 1]) for at in range(len(times))]
        heard += [(at, number, record) for at, record in zip(times, records, strict=True)]
    return [record for _, _, record in sorted(heard, key=lambda one: one[:2])]


class Kept:
    """What a worker that is cut and killed now and then leaves behind."""

    def __init__(self, records: list[EventsRecord], seed: int, *, killed: float = 0.03) -> None:
        rng = random.Random(seed)
        self.rows: dict[Any, Any] = {}
        self.residency: list[ResidencyRecord] = []
        self.latest: dict[bytes, bytes] = {}
        self.forgotten = 0
        self.state = PartitionState(0, WORKER, shards=SHARDS)
        offset = 0
        while offset < len(records):
            self.state.apply(offset, records[offset])
            offset += 1
            dies = rng.random() < killed
            if rng.random() < 0.2:
                self._save(BEGAN + rng.choice([0.0, 1e4]), commit=not dies)
            if dies:
                self.state = PartitionState.restore(0, WORKER, shards=SHARDS, latest=self.latest)
                offset = self.state.next_offset
        for _ in range(3):
            self._save(BEGAN + 1e6, commit=True)

    def _save(self, now: float, *, commit: bool) -> None:
        cut = self.state.cut(now)
        for row in cut.rows:
            known = self.rows.get(key_of(row))
            if known is None or row.version >= known.version:
                self.rows[key_of(row)] = row
        if not commit:
            return
        self.forgotten += self.state.take_forgotten()
        for _, _, value in cut.residency:
            self.residency.append(msgspec.msgpack.decode(value, type=ResidencyRecord))
        for key, value in cut.checkpoints:
            if value is None:
                self.latest.pop(key, None)
            else:
                self.latest[key] = value


def compared(records: list[EventsRecord], kept: Kept) -> tuple[Findings, int]:
    """Return what the recount finds, and how many sources it forgets."""
    findings, topic, silences = Findings(), TopicCheck(), Silences(WORKER)
    of_source: dict[tuple[str, int], list[Any]] = {}
    for row in kept.rows.values():
        of_source.setdefault((row.replica, row.dp_rank), []).append(row)
    checks: dict[tuple[str, int], SourceCheck] = {}
    forgotten = 0
    for offset, record in enumerate(records):
        for source in silences.next(record):
            checks[source].forget(offset)
            forgotten += 1
        source = (record.replica, record.dp_rank)
        if source not in checks:
            checks[source] = SourceCheck(
                *source,
                WORKER,
                of_source.pop(source, ()),
                findings,
                committed=len(records),
                whole=True,
                oldest=LONG_AGO,
            )
        checks[source].apply(offset, record)
    for check in checks.values():
        check.finish(0, len(records))
        topic.expect(0, len(records), check.residency_sums)
    for said in kept.residency:
        topic.apply(said)
    topic.finish(findings)
    assert not of_source
    return findings, forgotten


@pytest.mark.parametrize("wrong_clocks", [False, True], ids=["clocks", "wrong clocks"])
@pytest.mark.parametrize("seed", range(6))
def test_agent_and_recount_forget_the_same(seed: int, wrong_clocks: bool) -> None:
    records = rotating(seed, wrong_clocks=wrong_clocks)
    kept = Kept(records, seed)
    findings, forgotten = compared(records, kept)
    assert findings.equal, findings.kept[:3]
    assert forgotten
    assert not findings.left_out


@pytest.mark.parametrize("seed", range(3))
def test_kills_and_cuts_decide_nothing(seed: int) -> None:
    records = rotating(seed, wrong_clocks=False)
    kept, undisturbed = Kept(records, seed), Kept(records, seed + 100, killed=0.0)
    assert undisturbed.state.sources.keys() == kept.state.sources.keys()
    assert undisturbed.forgotten >= kept.forgotten > 0
    lives = [
        {key: row for key, row in each.rows.items() if isinstance(row, SourceRow)}
        for each in (kept, undisturbed)
    ]
    assert lives[0] == lives[1]


def names_in(latest: Iterable[bytes]) -> set[str]:
    return {msgspec.msgpack.decode(key)[0] for key in latest if key != b"@meta"}


def test_nothing_is_kept_of_what_is_forgotten() -> None:
    for seed in range(4):
        kept = Kept(rotating(seed, wrong_clocks=False), seed)
        assert names_in(kept.latest) == {replica for replica, _ in kept.state.sources}
