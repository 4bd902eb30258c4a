"""A partition that is cut and restored anywhere gives the same rows and changes as one that is not."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.residency.checkpoint import bases, entries, partition_bases
from pipeline.residency.partition import PartitionState
from pipeline.verify.keys import key_of
from schemas.events import (
    Batch,
    Cleared,
    Closed,
    EngineCounters,
    Event,
    EventsRecord,
    Gap,
    Removed,
    SourceStatus,
    Stored,
    Undecodable,
)
from schemas.hashes import unpack_hashes
from schemas.residency import FILLS
from schemas.rows import OccupancyRow, Row, SourceRow
from schemas.settings import Worker
from tests.support.inputs.event_records import batch, notice, opened, record, sent
from tests.support.inputs.packed import packed
from tests.support.replica_agent import ReplicaAgent, residency_of, rows_of
from tests.support.suite.night import examples

START = 1_800_000_000.0
SHARDS = 4
SETTINGS = Worker(fine_block_age_seconds=20.0)

hashes = st.lists(st.integers(0, 20).map(lambda n: n * 0x0F0F_0F0F_0F0F_0F0F % 2**64), max_size=5).map(
    lambda values: packed(*values)
)
media, groups = st.sampled_from(["gpu", "gpu", "cpu"]), st.sampled_from([0, 0, 1])
events: st.SearchStrategy[Event] = st.one_of(
    st.builds(
        Stored,
        hashes=hashes,
        block_size=st.sampled_from([16, 64]),
        parent=st.none() | hashes.map(lambda several: several[:8] or None),
        medium=media,
        group_idx=groups,
    ),
    st.builds(Removed, hashes=hashes, medium=media, group_idx=groups),
    st.just(Cleared()),
    st.just(Undecodable("unknown_type")),
)
batches = st.lists(events, max_size=4)
gaps_between = st.sampled_from([0.0, 0.01, 0.5, 3.0, 12.0, 45.0])
runs = st.lists(
    st.tuples(
        st.sampled_from(["a", "b"]),
        st.lists(st.tuples(gaps_between, batches), min_size=1, max_size=4),
        st.sampled_from(
            ["", "", "", "gap", "repeat", "restart", "counters", "idle", "unreached", "silent", "replayed"]
        ),
    ),
    max_size=12,
)


def records(plan: list) -> list[EventsRecord]:
    """Turn a plan into the log of one partition: two sources with restarts, gaps and repeated records."""
    log: list[EventsRecord] = []
    state: dict[str, tuple[int, int, float]] = {}
    for replica, parts, special in plan:
        life, seq, at = state.get(replica, (0, 0, START))
        said: list[Batch] = []
        if not life or special == "restart":
            if life:
                log.append(record(notice(at, Closed("restarted")), replica=replica, life=life))
            life, seq = life + 1, 0
            said.append(opened(at))
        if special == "gap":
            said.append(notice(at, Gap(seq, seq + 2, "replay_not_configured")))
            seq += 3
        if special == "counters":
            said.append(notice(at, EngineCounters(capacity_blocks=4 + seq, block_size=16)))
        if special in ("idle", "unreached"):
            log.append(record(*said, replica=replica, life=life))
            for _ in range(len(parts)):
                at += 10
                status = SourceStatus(connected=special == "idle")
                log.append(record(notice(at, status), replica=replica, life=life))
            # Replays bring what is older than the last word of a source that was not reached.
            at -= 15 * (special == "unreached")
            said = []
        if special == "silent":
            # Later than any wall clock of the test has been.
            at += 45
            log.append(record(*said, notice(at, Closed("silent")), replica=replica, life=life))
            life, seq = life + 1, 0
            status = SourceStatus(connected=False)
            log.append(record(notice(at, status), replica=replica, life=life))
            said = [opened(at)]
        for wait, batch_events in parts:
            at += wait
            replayed = special in ("replayed", "unreached")
            said.append(batch(seq, at, *batch_events, received_at=at + 0.01, replayed=replayed))
            seq += 1
        log.append(record(*said, replica=replica, life=life, engine="vllm", wire_era="map"))
        if special == "repeat":
            log.append(log[-1])
        state[replica] = (life, seq, at)
    return log


def upsert(table: dict[tuple, Row], rows: list[Row]) -> None:
    for row in rows:
        present = table.get(key_of(row))
        if present is None or row.version >= present.version:
            table[key_of(row)] = row


def run(
    log: list[EventsRecord],
    cuts: Mapping[int, float],
    *,
    restore: bool,
    leaves: bool = False,
    announced: int = 0,
) -> tuple[dict[tuple, Row], list[tuple]]:
    """Apply the log with checkpoints after the given records; return final rows and all changes.

    `cuts` says how many seconds the wall clock is ahead of the log then; idle sources are carried forward.
    With `restore` somebody else goes on from there, after the last one `leaves` or is killed.
    """
    table: dict[tuple, Row] = {}
    changes: list[tuple] = []
    latest: dict[bytes, bytes] = {}
    state = PartitionState(0, SETTINGS, shards=SHARDS)
    state.note_committed(announced)

    def checkpoint(now: float) -> None:
        cut = state.cut(now)
        assert not cut.dirty or cut.next_offset >= announced
        upsert(table, cut.rows)
        latest.update(cut.checkpoints)
        for (shard, *_), told in zip(cut.residency, residency_of(cut), strict=True):
            assert (told.shard, told.next_offset) == (shard, state.next_offset)
            for source in told.sources:
                for part in source.changes:
                    where = (source.replica, source.incarnation, part.medium, part.group_idx)
                    for block, kind in zip(unpack_hashes(part.hashes), part.kinds, strict=True):
                        assert block * SHARDS >> 64 == shard
                        changes.append((*where, block, kind))

    for offset, said in enumerate(log):
        state.apply(offset, said)
        if offset in cuts:
            now = max((one.ts for one in said.batches), default=START) + cuts[offset]
            checkpoint(now)
            if leaves:
                state.leaves()
            checkpoint(now)
            if restore:
                state = PartitionState.restore(0, SETTINGS, shards=SHARDS, latest=latest)
                assert state.required_end == offset + 1
                for again in range(state.next_offset, offset + 1):
                    state.apply(again, log[again])
                    if again % 3 == 0:
                        cut = state.cut(now)
                        assert not cut.dirty or again == offset
                        upsert(table, cut.rows)
                        latest.update(cut.checkpoints)
                assert state.next_offset == offset + 1
    end = max((one.ts for said in log for one in said.batches), default=START) + 60
    checkpoint(end)
    checkpoint(end)
    return table, changes


def per_block(changes: list[tuple]) -> dict[tuple, list[int]]:
    courses: dict[tuple, list[int]] = {}
    for *block, kind in changes:
        courses.setdefault(tuple(block), []).append(kind)
    return courses


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Bases after a few changes or seconds, of several records."""
    monkeypatch.setattr(entries, "RECORD_ENTRIES", 3)
    monkeypatch.setattr(bases, "MIN_CHANGES", 4)
    monkeypatch.setattr(bases, "MAX_SECONDS", 40.0)
    monkeypatch.setattr(bases, "MIN_SECONDS", 9.0)
    monkeypatch.setattr(bases, "BLOCKS_A_SECOND", 0.2)
    monkeypatch.setattr(partition_bases, "BASE_BYTES", 300)


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("leaves", [False, True])
@examples(150)
@given(plan=runs, cuts=st.dictionaries(st.integers(0, 14), st.sampled_from([0.0, 7.0, 35.0])))
def test_restored_state_continues_as_if_nothing_had_happened(
    plan: list, cuts: dict[int, float], leaves: bool
) -> None:
    log = records(plan)
    undisturbed, all_changes = run(log, {}, restore=False)
    restored, restored_changes = run(log, cuts, restore=True, leaves=leaves)
    assert restored == undisturbed
    assert per_block(restored_changes) == per_block(all_changes)


@examples(100)
@given(runs, st.integers(0, 14), st.dictionaries(st.integers(0, 14), st.just(0.0)))
def test_state_that_lost_its_checkpoints_tells_no_change_twice(
    plan: list, lost_after: int, cuts: dict[int, float]
) -> None:
    log = records(plan)
    told = log[: lost_after + 1]
    undisturbed, all_changes = run(log, {}, restore=False)
    _, told_before = run(told, cuts, restore=False)
    again, told_after = run(log, cuts, restore=False, announced=len(told))
    assert again == undisturbed
    assert per_block(told_before + told_after) == per_block(all_changes)


@examples(100)
@given(runs)
def test_changes_of_a_block_alternate(plan: list) -> None:
    _, changes = run(records(plan), {}, restore=False)
    for block, kinds in per_block(changes).items():
        came = [kind in FILLS for kind in kinds]
        assert came == [index % 2 == 0 for index in range(len(came))], block


def applied(*records: EventsRecord) -> ReplicaAgent:
    agent = ReplicaAgent(SETTINGS, shards=SHARDS)
    agent.apply(*records)
    return agent


def test_an_idle_source_is_carried_forward() -> None:
    agent = applied(sent(0, START, Stored(packed(1), 16)))
    agent.cut(START)
    rows = rows_of(agent.cut(START + 35), OccupancyRow)
    assert [(row.window.timestamp(), row.blocks, row.version) for row in rows] == [
        (START + 10, 1, 0),
        (START + 20, 1, 0),
        (START + 30, 1, 0),
    ]
    assert not agent.cut(START + 35).dirty, "each window is carried once"


def test_numbers_the_log_lacks_degrade_the_source() -> None:
    source = applied(sent(0, START), sent(4, START + 1)).source()
    assert (source.overall_trust().trust, source.head.health.lost_batches) == ("degraded", 3)


def test_a_batch_nobody_understood_is_no_lost_batch() -> None:
    bad = [notice(START, Undecodable("not_msgpack", seq=seq)) for seq in (1, 2)]
    source = applied(record(opened(START), batch(0, START), *bad, batch(3, START))).source()
    assert source.head.health.lost_batches == 0
    assert source.head.health.undecodable_events == 2
    assert source.overall_trust().trust == "degraded"


def test_a_batch_that_comes_again_and_is_understood_hides_no_later_loss() -> None:
    bad = [notice(START, Undecodable("not_msgpack", seq=seq)) for seq in (1, 2)]
    agent = applied(record(opened(START), batch(0, START), *bad), sent(1, START))
    assert agent.source().head.passed_over == 1, "batch 2 is still known"
    agent.apply(sent(3, START))
    assert agent.source().head.health.lost_batches == 0
    agent.apply(sent(5, START))
    assert agent.source().head.health.lost_batches == 1


def test_hashes_of_a_broken_length_cost_only_their_event() -> None:
    events = Stored(b"123", 16), Stored(packed(1), 16), Removed(b"12345")
    source = applied(record(batch(0, START, *events))).source()
    assert [(row.entries, row.blocks) for row in source.occupancy()] == [(1, 1)]
    assert source.head.health.undecodable_events == 2


def test_a_source_too_large_for_one_record_is_saved_in_several(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(entries, "RECORD_ENTRIES", 10)
    blocks = packed(*range(1, 96))
    agent = applied(sent(0, START, Stored(blocks, 16), Stored(blocks[:80], 16, medium="cpu")))
    agent.moved(START)
    agent.apply(sent(1, START, Removed(blocks[:400])))
    agent.moved(START)
    assert max(map(len, agent.latest.values())) < 2_000
    occupancy = [(row.medium, row.blocks) for row in agent.source().occupancy()]
    assert occupancy == [("gpu", 45), ("cpu", 10)]


def test_rows_carried_too_early_are_written_again_even_after_the_end() -> None:
    table: dict[tuple, Row] = {}
    agent = applied(sent(0, START, Stored(packed(1), 16)))
    for _ in range(2):
        upsert(table, agent.cut(START + 35).rows)
    late = batch(1, START + 1, Stored(packed(2), 16), received_at=START + 36)
    agent.apply(record(late, notice(START + 37, Closed("removed"))))
    for _ in range(2):
        upsert(table, agent.cut(START + 95).rows)
    blocks = [
        (row.window.timestamp() - START, row.blocks)
        for row in table.values()
        if isinstance(row, OccupancyRow)
    ]
    assert sorted(blocks) == [(0.0, 0), (10.0, 0), (20.0, 0), (30.0, 0)]


def test_records_that_retention_removed_degrade_those_whose_bases_lack_some() -> None:
    agent = applied(*(sent(0, START, replica=replica) for replica in "abc"))
    agent.state.leaves()
    agent.cut(START)
    agent.apply(*(sent(1, START, replica=replica) for replica in "ba"))
    agent.cut(START)
    restored = PartitionState.restore(0, SETTINGS, shards=SHARDS, latest=agent.latest)
    assert (restored.next_offset, restored.required_end) == (3, 5)
    restored.skip_removed(4)
    restored.apply(4, agent.log[4])
    trusts = {name: source.overall_trust().trust for (name, _), source in restored.sources.items()}
    assert trusts == {"a": "complete", "b": "degraded", "c": "complete"}
    assert restored.cut(START).dirty


def test_rows_of_records_that_retention_removed_stay_as_they_were_written() -> None:
    at = [START, START + 10, START + 20, START + 30]
    first, *others = (sent(seq, at[seq], Stored(packed(seq + 1), 16)) for seq in range(3))
    agent, table = applied(first), {}
    agent.state.leaves()
    agent.cut(at[0])
    agent.apply(*others)
    upsert(table, agent.cut(at[2]).rows)
    before = dict(table)
    state = PartitionState.restore(0, SETTINGS, shards=SHARDS, latest=agent.latest)
    state.skip_removed(2)
    state.apply(2, agent.log[2])
    upsert(table, state.cut(at[3]).rows)
    changed = {key for key in table if table[key] != before.get(key)}
    windows = {key[1] for key in changed if key[0] != SourceRow.TABLE}
    assert min(windows).timestamp() == at[2], "of the window that was open, where trust shows it"
    assert state.sources["r", 0].overall_trust().trust == "degraded"
