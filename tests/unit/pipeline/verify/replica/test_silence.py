"""Sources come, fall silent and come back: agent and recount forget the same ones at the same records."""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from datetime import datetime, timezone
from functools import lru_cache, partial
from typing import Any

import msgspec
import pytest

from pipeline.residency.partition import PartitionState
from pipeline.verify.findings import Findings
from pipeline.verify.fleet.topic_check import TopicCheck
from pipeline.verify.keys import key_of
from pipeline.verify.replica.partition import PartitionCheck
from schemas.events import Batch, Closed, EventsRecord, Opened, Stored
from schemas.residency import ResidencyRecord
from schemas.rows import OccupancyRow, SourceRow
from schemas.settings import Worker
from tests.support.inputs.source_walks import BEGAN, Walk, pack, with_wrong_clocks
from tests.support.suite.night import first_by_day

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

    def __init__(
        self, records: list[EventsRecord], seed: int, *, killed: float = 0.03, worker: Worker = WORKER
    ) -> None:
        rng = random.Random(seed)
        self.rows: dict[Any, Any] = {}
        self.residency: list[ResidencyRecord] = []
        self.latest: dict[bytes, bytes] = {}
        self.forgotten = self.killed = 0
        self.state = PartitionState(0, worker, shards=SHARDS)
        offset = 0
        while offset < len(records):
            self.state.apply(offset, records[offset])
            offset += 1
            dies = rng.random() < killed
            if rng.random() < 0.2:
                self._save(BEGAN + rng.choice([0.0, 1e4]), commit=not dies)
            if dies:
                self.killed += 1
                self.state = PartitionState.restore(0, worker, shards=SHARDS, latest=self.latest)
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


rotated = lru_cache(partial(rotating, wrong_clocks=False))


@lru_cache
def kept_of_rotated(seed: int) -> Kept:
    return Kept(rotated(seed), seed)


class Compared:
    """What the recount finds in a log of which it has the records from number `begin` on."""

    def __init__(self, records: list[EventsRecord], rows: Iterable[Any], begin: int = 0) -> None:
        self.findings = Findings()
        found: dict[tuple[str, int], list[Any]] = {}
        for row in rows:
            found.setdefault((row.replica, row.dp_rank), []).append(row)
        self.check = PartitionCheck(
            WORKER, found, self.findings, begin=begin, committed=len(records), oldest=LONG_AGO
        )
        self.forgotten: dict[tuple[str, int], list[int]] = {}
        for offset, record in enumerate(records[begin:], begin):
            for source in self.check.apply(offset, record):
                self.forgotten.setdefault(source, []).append(offset)
        self.check.finish(len(records))
        assert not found


@pytest.mark.parametrize("wrong_clocks", first_by_day([False, True]), ids=["clocks", "wrong clocks"])
@pytest.mark.parametrize("seed", first_by_day(range(6)))
def test_agent_and_recount_forget_the_same(seed: int, wrong_clocks: bool) -> None:
    records = rotating(seed, wrong_clocks=True) if wrong_clocks else rotated(seed)
    # Where clocks jump it goes back far: killed as often as others, it would need a quarter of an hour.
    kept = Kept(records, seed, killed=0.012) if wrong_clocks else kept_of_rotated(seed)
    assert kept.killed > 5
    found, topic = Compared(records, kept.rows.values()), TopicCheck()
    for sums in found.check.residency_sums():
        topic.expect(0, len(records), sums)
    for said in kept.residency:
        topic.apply(said)
    topic.finish(found.findings)
    assert found.findings.equal, found.findings.kept[:3]
    assert found.forgotten
    assert not found.findings.left_out


@pytest.mark.parametrize("seed", first_by_day(range(3)))
def test_kills_and_cuts_decide_nothing(seed: int) -> None:
    kept, undisturbed = kept_of_rotated(seed), Kept(rotated(seed), seed + 100, killed=0.0)
    assert undisturbed.state.sources.keys() == kept.state.sources.keys()
    assert undisturbed.forgotten >= kept.forgotten > 0
    lives = [
        {key: row for key, row in each.rows.items() if isinstance(row, SourceRow)}
        for each in (kept, undisturbed)
    ]
    assert lives[0] == lives[1]


def names_in(latest: Iterable[bytes]) -> set[str]:
    return {msgspec.msgpack.decode(key)[0] for key in latest if key != b"@meta"}


@pytest.mark.parametrize("seed", first_by_day(range(4)))
def test_nothing_is_kept_of_what_is_forgotten(seed: int) -> None:
    kept = kept_of_rotated(seed)
    assert names_in(kept.latest) == {replica for replica, _ in kept.state.sources}


@lru_cache
def rotating_pods(seed: int) -> list[EventsRecord]:
    """A log in which pods come at any time, report every ten seconds or so and go, most without a word."""
    rng = random.Random(seed)
    heard: list[tuple[float, int, EventsRecord]] = []
    for number in range(12):
        at = rng.uniform(0.0, 2500.0) if number > 2 else rng.uniform(0.0, 10.0)
        ends = at + rng.uniform(50.0, 500.0) if number > 2 else 5000.0
        for incarnation in range(1, rng.choice([2, 2, 3, 4]) if number > 2 else 2):
            seq = 0
            while at < ends:
                batches = [Batch(None, BEGAN + at, BEGAN + at, [Opened(0, complete=True)])] if not seq else []
                batches.append(Batch(seq, BEGAN + at, BEGAN + at, [Stored(pack([rng.getrandbits(64)]), 16)]))
                record = EventsRecord(f"pod-{number}", "m", "m/d", 0, incarnation, batches)
                record.first_seq, record.last_seq, seq = seq, seq, seq + 1
                heard.append((at, number, record))
                at += rng.uniform(9.0, 11.0)
            if rng.random() < 0.3:
                closed = Batch(None, BEGAN + at, BEGAN + at, [Closed("removed")])
                heard.append(
                    (at, number, EventsRecord(f"pod-{number}", "m", "m/d", 0, incarnation, [closed]))
                )
            at += rng.choice([450.0, 550.0, 590.0, 610.0, 650.0, 750.0]) + rng.uniform(-20.0, 20.0)
            ends = at + rng.uniform(50.0, 500.0)
    return [record for _, _, record in sorted(heard, key=lambda one: one[:2])]


@lru_cache
def kept_of_pods(seed: int) -> Kept:
    """After a kill much is read again, and killed again: one in a hundred records is read 25 times."""
    return Kept(rotating_pods(seed), seed, killed=0.002)


def forgotten_by_the_agent(records: list[EventsRecord]) -> dict[tuple[str, int], list[int]]:
    """Return the offsets at which the agent forgets each source whose life it has to end."""
    state = PartitionState(0, WORKER, shards=SHARDS)
    found: dict[tuple[str, int], list[int]] = {}
    for offset, record in enumerate(records):
        before = {key for key, source in state.sources.items() if source.head.closed_at is None}
        state.apply(offset, record)
        for key in before - state.sources.keys():
            found.setdefault(key, []).append(offset)
    return found


def heard_in(records: list[EventsRecord], begin: int) -> dict[tuple[str, int], int]:
    """Return where each source is heard first from number `begin` on."""
    first: dict[tuple[str, int], int] = {}
    for offset, record in enumerate(records[begin:], begin):
        first.setdefault((record.replica, record.dp_rank), offset)
    return first


OF_THE_DAY, PART_OF_THE_DAY = 3, 0.2
PARTS = (0.05, PART_OF_THE_DAY, 0.4, 0.6)
"""Of a log, where it begins."""


@pytest.mark.parametrize(
    ("seed", "parts"),
    [
        pytest.param(OF_THE_DAY, [PART_OF_THE_DAY], id="a part"),
        *(pytest.param(seed, PARTS, id=str(seed), marks=pytest.mark.night) for seed in range(8)),
    ],
)
def test_a_log_without_its_beginning_forgets_as_the_tables_tell(seed: int, parts: Sequence[float]) -> None:
    records, rows = rotating_pods(seed), kept_of_pods(seed).rows.values()
    by_the_agent = forgotten_by_the_agent(records)
    lives = ended = 0
    for part in parts:
        begin = int(part * len(records))
        found = Compared(records, rows, begin)
        assert found.findings.equal, (begin, found.findings.kept[:3])
        lives += found.findings.compared["sources"]
        for source, first in heard_in(records, begin).items():
            due = {offset for offset in by_the_agent.get(source, ()) if offset > first}
            assert due <= set(found.forgotten.get(source, ()))
            ended += len(due)
    assert lives > 2 * len(parts)
    assert ended > 2 * len(parts)


@pytest.mark.night
@pytest.mark.parametrize("seconds", [400.0, 800.0], ids=["too early", "too late"])
def test_a_log_without_its_beginning_finds_what_is_forgotten_at_another_time(seconds: float) -> None:
    records = rotating_pods(3)
    other = msgspec.structs.replace(WORKER, forget_seconds=seconds)
    rows = Kept(records, 3, killed=0.0, worker=other).rows.values()
    differing = Compared(records, rows, len(records) // 5).findings.differing
    assert differing["sources"]
    assert differing["stream_health_10s"]


@pytest.mark.parametrize(
    "wrong",
    first_by_day([{"closed_at": LONG_AGO}, {"closed_reason": ""}, {"last_seq": 10**6}]),
    ids=lambda wrong: min(wrong),
)
def test_a_log_without_its_beginning_checks_what_the_row_says_besides(wrong: dict[str, Any]) -> None:
    """That nothing differs before it is wrong is asserted above."""
    records = rotating_pods(OF_THE_DAY)
    rows = list(kept_of_pods(OF_THE_DAY).rows.values())
    newest = max(
        (row for row in rows if isinstance(row, SourceRow) and row.closed_reason == "forgotten"),
        key=lambda row: row.opened_at,
    )
    rows[rows.index(newest)] = msgspec.structs.replace(newest, **wrong)
    begin = int(PART_OF_THE_DAY * len(records))
    (difference,) = Compared(records, rows, begin).findings.kept
    assert (difference.table, difference.kind, set(difference.found)) == ("sources", "differs", set(wrong))


def test_connectors_whose_clocks_differ_make_nobody_silent() -> None:
    def said(replica: str, at: float, seq: int) -> EventsRecord:
        batches = [Batch(seq, at, at, [])]
        return EventsRecord(replica, "m", "m/d", 0, 1, batches, first_seq=seq, last_seq=seq)

    records = [said("idle", BEGAN, 0)]
    for number in range(800):
        at = BEGAN + number
        records += [said("alive", at, 2 * number), said("alive", at - 60.0, 2 * number + 1)]
    kept, found = Kept(records, 1), Compared(records, Kept(records, 1).rows.values())
    assert found.findings.equal, found.findings.kept[:3]
    assert set(kept.state.sources) == {("alive", 0)}
    # The first record of another source shows nothing of the time before it.
    assert found.forgotten == {("idle", 0): [1 + 2 * 600]}
    assert forgotten_by_the_agent(records) == found.forgotten


@pytest.mark.night
def test_a_log_without_its_beginning_has_no_say_on_granularities_known_from_before() -> None:
    records = rotated(1)
    rows = Kept(records, 1, killed=0.01).rows.values()
    assert any(isinstance(row, OccupancyRow) and row.covered_blocks for row in rows)
    for begin in (20, 38, 60):
        found = Compared(records, rows, begin)
        assert found.findings.equal, (begin, found.findings.kept[:3])
        assert found.findings.compared["occupancy_10s"] > len(rows) // 10
