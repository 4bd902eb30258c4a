"""A partition that is cut and restored anywhere gives the same rows and changes as one that is not."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.residency.checkpoint import bases, entries, partition_bases
from pipeline.residency.partition import PartitionState
from schemas.events import (
    Batch,
    Cleared,
    Closed,
    EngineCounters,
    Event,
    EventsRecord,
    Gap,
    Opened,
    Removed,
    SourceStatus,
    Stored,
    Undecodable,
)
from schemas.residency import FILLS, ResidencyRecord
from schemas.rows import EngineCountersRow, OccupancyRow, Row, SourceRow
from schemas.settings import Worker
from tests.support.suite.night import examples

START = 1_800_000_000.0
SHARDS = 4
SETTINGS = Worker(fine_block_age_seconds=20.0)

hashes = st.lists(st.integers(0, 20).map(lambda n: n * 0x0F0F_0F0F_0F0F_0F0F % 2**64), max_size=5).map(
    lambda values: b"".join(value.to_bytes(8, "big") for value in values)
)
events: st.SearchStrategy[Event] = st.one_of(
    st.builds(
        Stored,
        hashes=hashes,
        block_size=st.sampled_from([16, 64]),
        parent=st.none() | hashes.map(lambda packed: packed[:8] or None),
        medium=st.sampled_from(["gpu", "gpu", "cpu"]),
        group_idx=st.sampled_from([0, 0, 1]),
    ),
    st.builds(
        Removed,
        hashes=hashes,
        medium=st.sampled_from(["gpu", "gpu", "cpu"]),
        group_idx=st.sampled_from([0, 0, 1]),
    ),
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
        record_batches: list[Batch] = []
        if not life or special == "restart":
            if life:
                closing = [Batch(None, at, at, [Closed("restarted")])]
                log.append(EventsRecord(replica, "m", "d", 0, life, closing))
            life, seq = life + 1, 0
            record_batches.append(Batch(None, at, at, [Opened(seq, complete=True)]))
        if special == "gap":
            record_batches.append(Batch(None, at, at, [Gap(seq, seq + 2, "replay_not_configured")]))
            seq += 3
        if special == "counters":
            counters = EngineCounters(capacity_blocks=4 + seq, block_size=16)
            record_batches.append(Batch(None, at, at, [counters]))
        if special in ("idle", "unreached"):
            log.append(EventsRecord(replica, "m", "d", 0, life, record_batches))
            for _ in range(len(parts)):
                at += 10
                status = SourceStatus(connected=special == "idle")
                log.append(EventsRecord(replica, "m", "d", 0, life, [Batch(None, at, at, [status])]))
            # Replays bring what is older than the last word of a source that was not reached.
            at -= 15 * (special == "unreached")
            record_batches = []
        if special == "silent":
            # Later than any wall clock of the test has been.
            at += 45
            record_batches.append(Batch(None, at, at, [Closed("silent")]))
            log.append(EventsRecord(replica, "m", "d", 0, life, record_batches))
            life, seq = life + 1, 0
            record_batches = [Batch(None, at, at, [SourceStatus(connected=False)])]
            log.append(EventsRecord(replica, "m", "d", 0, life, record_batches))
            record_batches = [Batch(None, at, at, [Opened(seq, complete=True)])]
        for wait, batch_events in parts:
            at += wait
            batch = Batch(seq, at, at + 0.01, batch_events, engine_events=len(batch_events))
            batch.replayed = special in ("replayed", "unreached")
            record_batches.append(batch)
            seq += 1
        record = EventsRecord(replica, "m", "d", 0, life, record_batches, engine="vllm", wire_era="map")
        log.append(record)
        if special == "repeat":
            log.append(record)
        state[replica] = (life, seq, at)
    return log


def key_of(row: Row) -> tuple:
    fields = msgspec.structs.asdict(row)
    if isinstance(row, OccupancyRow):
        names = ("window", "model", "replica", "dp_rank", "medium", "group_idx", "block_size")
    elif isinstance(row, SourceRow):
        names = ("model", "replica", "dp_rank", "incarnation")
    elif isinstance(row, EngineCountersRow):
        names = ("model", "replica", "dp_rank", "time")
    else:
        names = tuple(
            name
            for name in ("window", "model", "replica", "dp_rank", "medium", "group_idx")
            if name in fields
        )
    return (type(row).__name__, *(fields[name] for name in names))


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
    state.announced(announced)

    def checkpoint(now: float) -> None:
        cut = state.cut(now)
        assert not cut.dirty or cut.next_offset >= announced
        upsert(table, cut.rows)
        latest.update(cut.checkpoints)
        for shard, _, value in cut.residency:
            record = msgspec.msgpack.decode(value, type=ResidencyRecord)
            assert (record.shard, record.next_offset) == (shard, state.next_offset)
            for source in record.sources:
                for part in source.changes:
                    for index, kind in enumerate(part.kinds):
                        block = part.hashes[8 * index : 8 * index + 8]
                        assert int.from_bytes(block, "big") * SHARDS >> 64 == shard
                        where = (source.replica, source.incarnation, part.medium, part.group_idx)
                        changes.append((*where, block, kind))

    for offset, record in enumerate(log):
        state.apply(offset, record)
        if offset in cuts:
            now = max((batch.ts for batch in record.batches), default=START) + cuts[offset]
            checkpoint(now)
            if leaves:
                state.leaves()
            checkpoint(now)
            if restore:
                state = PartitionState.restore(0, SETTINGS, shards=SHARDS, latest=latest)
                assert state.known_to == offset + 1
                for again in range(state.next_offset, offset + 1):
                    state.apply(again, log[again])
                    if again % 3 == 0:
                        cut = state.cut(now)
                        assert not cut.dirty or again == offset
                        upsert(table, cut.rows)
                        latest.update(cut.checkpoints)
                assert state.next_offset == offset + 1
    end = max((batch.ts for record in log for batch in record.batches), default=START) + 60
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


def test_an_idle_source_is_carried_forward() -> None:
    state = PartitionState(0, SETTINGS, shards=SHARDS)
    stored = Stored(b"\0" * 7 + b"\1", 16)
    log = [Batch(None, START, START, [Opened(0, complete=True)]), Batch(0, START, START, [stored])]
    state.apply(0, EventsRecord("a", "m", "d", 0, 1, log))
    state.cut(START)
    rows = [row for row in state.cut(START + 35).rows if isinstance(row, OccupancyRow)]
    assert [(row.window.timestamp(), row.blocks, row.version) for row in rows] == [
        (START + 10, 1, 0),
        (START + 20, 1, 0),
        (START + 30, 1, 0),
    ]
    assert not state.cut(START + 35).dirty, "each window is carried once"


def test_numbers_the_log_lacks_degrade_the_source() -> None:
    state = PartitionState(0, SETTINGS, shards=SHARDS)
    opening = [Batch(None, START, START, [Opened(0, complete=True)]), Batch(0, START, START, [])]
    state.apply(0, EventsRecord("a", "m", "d", 0, 1, opening))
    state.apply(1, EventsRecord("a", "m", "d", 0, 1, [Batch(4, START + 1, START + 1, [])]))
    source = state.sources["a", 0]
    assert (source.overall_trust().trust, source.head.health.lost_batches) == ("degraded", 3)


def test_a_batch_nobody_understood_is_no_lost_batch() -> None:
    state = PartitionState(0, SETTINGS, shards=SHARDS)
    log = [
        Batch(None, START, START, [Opened(0, complete=True)]),
        Batch(0, START, START, []),
        Batch(None, START, START, [Undecodable("not_msgpack", seq=1)]),
        Batch(None, START, START, [Undecodable("not_msgpack", seq=2)]),
        Batch(3, START, START, []),
    ]
    state.apply(0, EventsRecord("a", "m", "d", 0, 1, log))
    source = state.sources["a", 0]
    assert source.head.health.lost_batches == 0
    assert source.head.health.undecodable_events == 2
    assert source.overall_trust().trust == "degraded"


def test_hashes_of_a_broken_length_cost_only_their_event() -> None:
    state = PartitionState(0, SETTINGS, shards=SHARDS)
    good = Stored(b"\0" * 7 + b"\1", 16)
    log = [Batch(0, START, START, [Stored(b"123", 16), good, Removed(b"12345")])]
    state.apply(0, EventsRecord("a", "m", "d", 0, 1, log))
    source = state.sources["a", 0]
    assert [(row.entries, row.blocks) for row in source.occupancy()] == [(1, 1)]
    assert source.head.health.undecodable_events == 2


def test_a_source_too_large_for_one_record_is_saved_in_several(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(entries, "RECORD_ENTRIES", 10)
    state = PartitionState(0, SETTINGS, shards=SHARDS)
    blocks = b"".join(number.to_bytes(8, "big") for number in range(1, 96))
    opening = Batch(None, START, START, [Opened(0, complete=True)])
    log = [opening, Batch(0, START, START, [Stored(blocks, 16), Stored(blocks[:80], 16, medium="cpu")])]
    state.apply(0, EventsRecord("a", "m", "d", 0, 1, log))
    latest: dict[bytes, bytes | None] = {}
    state.leaves()
    latest.update(state.cut(START).checkpoints)
    state.apply(1, EventsRecord("a", "m", "d", 0, 1, [Batch(1, START, START, [Removed(blocks[:400])])]))
    state.leaves()
    latest.update(state.cut(START).checkpoints)
    assert max(len(value or b"") for value in latest.values()) < 2_000
    restored = PartitionState.restore(0, SETTINGS, shards=SHARDS, latest=latest)
    occupancy = [(row.medium, row.blocks) for row in restored.sources["a", 0].occupancy()]
    assert occupancy == [("gpu", 45), ("cpu", 10)]


def test_rows_carried_too_early_are_written_again_even_after_the_end() -> None:
    state = PartitionState(0, SETTINGS, shards=SHARDS)
    table: dict[tuple, Row] = {}
    opening = Batch(None, START, START, [Opened(0, complete=True)])
    first = Batch(0, START, START, [Stored(b"\0" * 7 + b"\1", 16)])
    state.apply(0, EventsRecord("a", "m", "d", 0, 1, [opening, first]))
    for _ in range(2):
        upsert(table, state.cut(START + 35).rows)
    late = Batch(1, START + 1, START + 36, [Stored(b"\0" * 7 + b"\2", 16)])
    closed = Batch(None, START + 37, START + 37, [Closed("removed")])
    state.apply(1, EventsRecord("a", "m", "d", 0, 1, [late, closed]))
    for _ in range(2):
        upsert(table, state.cut(START + 95).rows)
    blocks = [
        (row.window.timestamp() - START, row.blocks)
        for row in table.values()
        if isinstance(row, OccupancyRow)
    ]
    assert sorted(blocks) == [(0.0, 0), (10.0, 0), (20.0, 0), (30.0, 0)]


def test_records_that_retention_removed_degrade_those_whose_bases_lack_some() -> None:
    state = PartitionState(0, SETTINGS, shards=SHARDS)
    opening = Batch(None, START, START, [Opened(0, complete=True)])
    log = [EventsRecord(replica, "m", "d", 0, 1, [opening, Batch(0, START, START, [])]) for replica in "abc"]
    more = [EventsRecord(replica, "m", "d", 0, 1, [Batch(1, START, START, [])]) for replica in "ba"]
    for offset, record in enumerate(log):
        state.apply(offset, record)
    state.leaves()
    latest: dict[bytes, bytes | None] = dict(state.cut(START).checkpoints)
    for offset, record in enumerate(more, 3):
        state.apply(offset, record)
    latest.update(state.cut(START).checkpoints)
    restored = PartitionState.restore(0, SETTINGS, shards=SHARDS, latest=latest)
    assert (restored.next_offset, restored.known_to) == (3, 5)
    restored.skip_removed(4)
    restored.apply(4, more[1])
    trusts = {name: source.overall_trust().trust for (name, _), source in restored.sources.items()}
    assert trusts == {"a": "complete", "b": "degraded", "c": "complete"}
    assert restored.cut(START).dirty


def test_rows_of_records_that_retention_removed_stay_as_they_were_written() -> None:
    state, table = PartitionState(0, SETTINGS, shards=SHARDS), {}
    opening = Batch(None, START, START, [Opened(0, complete=True)])
    stored = [Stored(bytes(7) + bytes([number]), 16) for number in range(1, 4)]
    at = [START, START + 10, START + 20, START + 30]
    log = [EventsRecord("a", "m", "d", 0, 1, [opening, Batch(0, at[0], at[0], [stored[0]])])]
    log += [EventsRecord("a", "m", "d", 0, 1, [Batch(n, at[n], at[n], [stored[n]])]) for n in (1, 2)]
    state.apply(0, log[0])
    state.leaves()
    latest: dict[bytes, bytes | None] = dict(state.cut(at[0]).checkpoints)
    for offset in (1, 2):
        state.apply(offset, log[offset])
    cut = state.cut(at[2])
    upsert(table, cut.rows)
    latest.update(cut.checkpoints)
    before = dict(table)
    state = PartitionState.restore(0, SETTINGS, shards=SHARDS, latest=latest)
    state.skip_removed(2)
    state.apply(2, log[2])
    upsert(table, state.cut(at[3]).rows)
    changed = {key for key in table if table[key] != before.get(key)}
    windows = {key[1] for key in changed if key[0] != "SourceRow"}
    assert min(windows).timestamp() == at[2], "of the window that was open, where trust shows it"
    assert state.sources["a", 0].overall_trust().trust == "degraded"
