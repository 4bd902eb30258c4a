"""Blocks that leave although they cannot have been there, by a stream of which every batch is known."""

from __future__ import annotations

import random

import pytest

from pipeline.reading.windows import window_of
from pipeline.residency.rows import View, rows
from pipeline.residency.source import SourceResidency
from pipeline.verify.replica.source import SourceRecount
from schemas.events import Batch, Cleared, Closed, Event, EventsRecord, Gap, Removed, Stored, Undecodable
from schemas.rows import FlowRow, OccupancyRow, SourceRow, StreamHealthRow
from schemas.settings import Worker
from tests.support.inputs import event_records
from tests.support.inputs.event_records import notice, opened, record
from tests.support.inputs.packed import packed
from tests.support.replica_agent import ReplicaAgent, rows_of
from tests.support.suite.night import first_by_day

NOW = 1_800_000_000.0


def batch(number: int, *events: Event) -> Batch:
    return event_records.batch(number, NOW + number, *events)


def applied(*records: EventsRecord, settings: Worker | None = None) -> ReplicaAgent:
    agent = ReplicaAgent(settings)
    agent.apply(*records)
    return agent


def source_row(agent: ReplicaAgent) -> SourceRow:
    return rows_of(agent.cut(NOW), SourceRow)[-1]


OPENED = opened(NOW)


def test_the_removal_of_a_block_that_is_not_there_degrades_its_medium_from_its_window_on() -> None:
    stored = [Stored(packed(1, 2), 16, 32), Stored(packed(8), 16, 16, medium="cpu")]
    removed = Removed(packed(2))
    cut = applied(record(OPENED, batch(0, *stored), batch(1, removed), batch(2, removed))).cut(NOW)
    [gpu, cpu] = rows_of(cut, OccupancyRow)
    assert (gpu.medium, gpu.trust, gpu.trust_since.timestamp()) == ("gpu", "degraded", NOW)
    assert (cpu.medium, cpu.trust) == ("cpu", "complete")
    [source] = rows_of(cut, SourceRow)
    assert (source.trust, source.remarks) == ("degraded", ["contradiction"])


@pytest.mark.parametrize(
    "begin",
    [
        [opened(NOW, complete=False)],
        [OPENED, batch(0), notice(NOW + 1, Gap(1, 1, "replay_holes"))],
        [OPENED, batch(0, Undecodable("bad_group", 0))],
    ],
    ids=["partial", "gap", "undecodable"],
)
def test_where_something_may_be_missing_it_contradicts_nothing(begin: list[Batch]) -> None:
    assert source_row(applied(record(*begin, batch(2, Removed(packed(7)))))).remarks == []


def test_a_clear_makes_the_medium_complete_again_and_the_remark_stays() -> None:
    cut = applied(record(OPENED, batch(0, Removed(packed(7))), batch(1, Cleared()))).cut(NOW)
    [source] = rows_of(cut, SourceRow)
    assert (source.trust, source.remarks) == ("complete", ["contradiction"])
    assert not rows_of(cut, OccupancyRow)
    assert [row.trust for row in rows_of(cut, StreamHealthRow)] == ["degraded"]


def test_copies_taken_for_repetitions_are_counted_once_a_block_leaves_twice() -> None:
    """Requests that do not read the prefix cache store second copies (vLLM, `prompt_logprobs`)."""
    store = Stored(packed(3, 4, 5), 16, 48)
    removed = Removed(packed(5))
    batches = batch(0, store), batch(1, store), batch(2, removed), batch(3, removed, Stored(packed(3, 4), 16))
    log = record(OPENED, *batches, may_reannounce=True)
    agent = applied(log, settings=Worker(reannounced="auto"))
    source = agent.source()
    [row] = source.occupancy()
    assert (row.entries, row.blocks) == (6, 2)
    assert source.overall_trust().trust == "complete"
    flow = agent.flow()["gpu", 0]
    assert (flow.reannounced_blocks, flow.unknown_removed_blocks) == (3, 0)


def test_until_a_repetition_is_proved_to_be_none_figures_are_lower_bounds() -> None:
    store, other = Stored(packed(3, 4, 5), 16, 48), Stored(packed(6), 16, 16)
    settings = Worker(reannounced="auto")
    begin = [OPENED, batch(0, store, other)]
    again, clear = batch(1, store), batch(2, Cleared())

    def at_least(*batches: Batch, may_reannounce: bool | None = True) -> bool:
        agent = applied(record(*begin, *batches, may_reannounce=may_reannounce), settings=settings)
        [row] = rows_of(agent.cut(NOW), OccupancyRow)
        return row.at_least

    assert not at_least()
    assert at_least(again)
    # A chain that goes on is a copy, which counts; so is all of an engine that never announces again.
    assert not at_least(batch(1, Stored(packed(4, 5), 16, 32, packed(3))))
    assert not at_least(again, may_reannounce=None)
    assert not at_least(again, clear)
    assert at_least(again, clear, batch(3, store, store))


class Walk:
    """Random events, of few blocks, so that unknown ones leave now and then; times may stand still."""

    MEDIA = ("gpu", "gpu", "gpu", "cpu", "storage")
    GROUPS = (0, 0, 1)

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.media = self.MEDIA if self.rng.random() < 0.5 else ("gpu",)
        self.incarnation = self.seq = 0
        self.at = NOW

    def record(self) -> EventsRecord:
        rng = self.rng
        batches: list[Batch] = []
        if not self.incarnation or rng.random() < 0.03:
            if self.incarnation and rng.random() < 0.5:
                return self._record([notice(self.at, Closed("restarted"))])
            self.incarnation, self.seq = self.incarnation + 1, 0
            batches.append(opened(self.at, complete=rng.random() < 0.9))
        for _ in range(rng.randrange(1, 5)):
            self.at += rng.choice((0, 0.5, 3))
            if rng.random() < 0.02:
                batches.append(notice(self.at, Gap(self.seq, self.seq, "replay_holes")))
                self.seq += 1
            events = [self._event() for _ in range(rng.randrange(1, 5))]
            batches.append(event_records.batch(self.seq, self.at - rng.choice((0, 0, 2)), *events))
            self.seq += 1
        return self._record(batches)

    def _record(self, batches: list[Batch]) -> EventsRecord:
        remarks = ["other_rank:3"] if self.rng.random() < 0.1 else []
        return record(*batches, life=self.incarnation, may_reannounce=True, remarks=remarks)

    def _event(self) -> Event:
        rng = self.rng
        medium, choice = rng.choice(self.media), rng.random()
        group = rng.choice(self.GROUPS) if len(self.media) > 1 else 0
        hashes = rng.sample(range(1, 12), rng.randrange(1, 4))
        if choice < 0.03:
            return Cleared(rng.choice((None, medium)))
        if choice < 0.05:
            return Undecodable("unknown_type", self.seq, 1, "X", rng.choice((None, medium)))
        if choice < 0.4:
            return Removed(packed(*hashes[:1]), medium, None, group)
        parent = packed(rng.randrange(1, 12)) if choice < 0.6 else None
        return Stored(packed(*hashes), 16, 16 * len(hashes), parent, medium, None, group)


@pytest.mark.parametrize("seed", first_by_day(range(60), 20))
def test_the_recount_finds_the_same_whenever_the_worker_looks(seed: int) -> None:
    walk = Walk(seed)
    settings = Worker(max_clock_behind_seconds=3600.0, reannounced="auto")
    agent, recount = ReplicaAgent(settings), SourceRecount("r", 0, settings)
    for offset in range(60):
        said = walk.record()
        agent.apply(said)
        recount.apply(offset, said)
        if walk.rng.random() < 0.2:
            look = agent.moved if walk.rng.random() < 0.5 else agent.cut
            look(walk.at)
        if walk.rng.random() < 0.3:
            source = agent.source()
            held = {
                (row.medium, row.group_idx, row.block_size): (row.entries, row.blocks)
                for row in source.occupancy()
            }
            assert held == {
                (medium, group, part.block_size): (part.entries, part.blocks)
                for medium, group, part in recount.held(walk.at)
            }
            assert source.head.remarks == recount.life.remarks
            for medium in {*walk.media}:
                since = recount.trust.of(medium)
                found = [row for row in _rows(source, walk.at) if row.medium == medium]
                assert {(row.trust, row.trust_since.timestamp()) for row in found} <= {
                    (since.trust, since.at)
                }


def _rows(source: SourceResidency, at: float) -> list[OccupancyRow]:
    found = rows(View(source.head, window_of(at), source.occupancy()))
    return [row for row in found if isinstance(row, OccupancyRow)]


def test_flow_rows_have_the_worst_trust_of_their_window() -> None:
    batches = batch(0, Removed(packed(7))), batch(1, Cleared(), Stored(packed(1), 16, 16))
    [row] = rows_of(applied(record(OPENED, *batches)).cut(NOW), FlowRow)
    assert (row.trust, row.trust_since.timestamp()) == ("degraded", NOW)
