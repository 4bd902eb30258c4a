"""A log without its beginning: what was held then follows from a checkpoint, and the rest is recounted."""

from __future__ import annotations

import random
import struct
from datetime import datetime
from typing import Any, NamedTuple

import msgspec
import numpy as np
import pytest

from pipeline.fleet.kernel.keys import constant_of
from pipeline.fleet.kernel.keys import key_of as key_of_hash
from pipeline.fleet.state import FleetState
from pipeline.verify import times
from pipeline.verify.findings import Findings
from pipeline.verify.fleet.beginning.checkpoint import CheckpointUnclear, Saved, hash_of, saved_in
from pipeline.verify.fleet.beginning.undoing import CONTRADICTED, Beginning, BeginningUnknown, Undoing
from pipeline.verify.fleet.check import ShardCheck, Written
from pipeline.verify.fleet.parsed import columns_of
from pipeline.verify.fleet.recount import FleetRecount
from pipeline.verify.keys import key_of
from schemas.events import Batch, EventsRecord
from schemas.fleet_checkpoints import HEAD_KEY, FleetHead
from schemas.fleet_rows import FillsRow, RedundancyRow
from schemas.residency import FILLED, ResidencyChanges, ResidencyRecord, SourceChanges
from schemas.setting_rows import HashGroupRow
from schemas.settings import Fleet, Worker
from tests.support.fleet_recount import LONG_AGO, rows_of
from tests.support.inputs.fleet_walks import walked
from tests.support.suite.night import first_by_day

SHARDS = 1 << 32
"""So many that no hash of a walk is in another than the first."""
FLEET = Fleet(horizon_seconds=60.0, compare_after=3)


def walk(seed: int, steps: int = 400) -> list[ResidencyRecord]:
    """Return records in which every change is a real one, as the replica agent tells them."""
    rng = random.Random(seed)
    whats = ["block"] * 14 + ["clear", "restart", "trust", "idle", "cut", "cut"]
    pools = [("gpu", 0)] * 5 + [("gpu", 1), ("cpu", 0), ("disk", 0), ("fs", 0), ("LMCache", 0)]
    return walked(
        [
            (rng.randrange(4), rng.choice(whats), rng.randrange(8), rng.choice(pools), rng.uniform(-1.0, 8.0))
            for _ in range(steps)
        ],
        {1} if seed % 2 else (),
    ).records


def saved_after(records: list[ResidencyRecord], fleet: Fleet = FLEET, first: int = 0) -> dict[bytes, bytes]:
    """Return the base of an agent that has followed these records."""
    state = FleetState(0, fleet, carry_seconds=3600)
    for number, record in enumerate(records, first):
        state.apply(2 * number, record)
    state.cut(0.0)
    return dict(state.cut(1e9).checkpoints)


class Undone(NamedTuple):
    saved: Saved
    undoing: Undoing
    beginning: Beginning


def undone(records: list[ResidencyRecord], begin: int, saved_at: int, *, fleet: Fleet = FLEET) -> Undone:
    """Undo the records from number `begin` to before `saved_at`, given the base of then."""
    saved = saved_in(saved_after(records[:saved_at], fleet), 0, SHARDS)
    assert saved is not None
    undoing = Undoing(saved)
    for record in reversed(records[begin:saved_at]):
        undoing.undo(record)
    # In a walk nobody knows when a record was written; the latest time of then bounds what came before.
    latest = max(
        at
        for record in records[:begin]
        for said in record.sources
        for pool in said.changes
        for at in columns_of(pool).times
    )
    return Undone(saved, undoing, undoing.beginning(written_at=latest, ahead=0.0))


def compared(
    records: list[ResidencyRecord], rows: list[Any], begin: int, beginning: Beginning, fleet: Fleet = FLEET
) -> Findings:
    findings = Findings()
    check = ShardCheck(
        0,
        fleet,
        rows,
        findings,
        Written(2 * len(records), LONG_AGO, begin=2 * begin),
        forget_seconds=Worker().forget_seconds,
        beginning=beginning,
    )
    for number, record in enumerate(records[begin:], begin):
        check.apply(2 * number, record)
    check.finish(2 * len(records))
    return findings


def window_of(row: Any) -> datetime:
    return LONG_AGO if isinstance(row, HashGroupRow) else row.window


@pytest.mark.parametrize("seed", first_by_day(range(12)))
def test_rows_behind_the_beginning_are_those_of_the_recount(seed: int) -> None:
    records = walk(seed)
    begin, saved_at = len(records) // 4, len(records) // 2
    rows = rows_of(records, FLEET, every=3)
    beginning = undone(records, begin, saved_at).beginning
    findings = compared(records, rows, begin, beginning)
    assert findings.equal, findings.kept[:3]
    behind = {
        table: sum(table == row.TABLE and row.window >= since for row in rows)
        for table, since in findings.compared_from.items()
    }
    assert all(findings.compared[table] <= rows_behind for table, rows_behind in behind.items())
    # Most of what is behind the beginning is compared; what stood before and was carried there is not.
    assert findings.compared["redundancy_10s"] > 0.5 * behind["redundancy_10s"] > 0
    assert findings.compared["fills_10s"] > 0.3 * sum(row.TABLE == "fills_10s" for row in rows)
    assert findings.compared["hot_prefixes_10s"] > 0
    assert sum(findings.compared.values()) + findings.left_out.total() == len(rows)


@pytest.mark.parametrize("seed", first_by_day(range(6)))
def test_what_was_held_is_what_the_recount_of_all_holds_there(seed: int) -> None:
    records = walk(seed)
    begin, saved_at = len(records) // 3, len(records) - 1
    found = undone(records, begin, saved_at)
    assert not found.undoing.contradictions
    assert found.saved.followed > found.undoing.changes
    whole, later = FleetRecount(FLEET), FleetRecount(FLEET, found.beginning)
    for number, record in enumerate(records[:begin]):
        whole.apply(2 * number, record)
    left = {key: of for key, of in whole.owners.redundancy.items() if of.physical_tokens}
    assert {
        key: (+of.owners, of.unique_tokens, of.physical_tokens) for key, of in left.items()
    } == {
        key: (+of.owners, of.unique_tokens, of.physical_tokens)
        for key, of in later.owners.redundancy.items()
        if of.physical_tokens
    }  # fmt: skip


@pytest.mark.parametrize("saved_at", [2, 4], ids=["saved there", "saved later"])
@pytest.mark.parametrize("receives", [True, False])
def test_the_log_decides_on_what_was_undecided_where_it_begins(receives: bool, saved_at: int) -> None:
    def filled(replica: str, at: float, *blocks: int, **said: bool) -> SourceChanges:
        count = len(blocks)
        hashes, times_of = struct.pack(f">{count}Q", *blocks), struct.pack(f"<{count}d", *[at] * count)
        sizes, kinds = struct.pack(f"<{count}I", *[16] * count), bytes([FILLED]) * count
        part = ResidencyChanges("gpu", 0, hashes, kinds, times_of, sizes, ends=hashes)
        return SourceChanges(replica, "m", "d", 0, 1, "complete", [part], **said)

    def record(read_to: float, *sources: SourceChanges) -> ResidencyRecord:
        return ResidencyRecord(0, 0, 0, [*sources], 1, read_to, 0.0 if sources else None)

    at = 1_000.0
    decision = SourceChanges("d", "m", "d", 0, 1, "complete", [], receives)
    records = [
        record(at, filled("p", at, 1, 2, 3)),
        record(at + 1.0, filled("d", at + 1.0, 1, 2, undecided=True)),
        record(at + 5.0, filled("p", at + 5.0, 4)),
        record(at + 6.0, decision),
        record(at + 100.0, filled("p", at + 100.0, 5)),
        record(at + 200.0, filled("p", at + 200.0, 6)),
    ]
    rows = rows_of(records, FLEET)
    received = max(row.received_tokens for row in rows if isinstance(row, RedundancyRow))
    assert received == (32 if receives else 0)
    saved = saved_in(saved_after(records[:saved_at]), 0, SHARDS)
    assert saved is not None
    undoing = Undoing(saved)
    for one in reversed(records[2:saved_at]):
        undoing.undo(one)
    beginning = undoing.beginning(written_at=at + 1.0, ahead=0.0)
    assert [said.replica for said in beginning.undecided.changes] == ["d"] * (saved_at == 2)
    findings = compared(records, rows, 2, beginning)
    assert findings.equal, findings.kept
    assert findings.compared["redundancy_10s"]


@pytest.mark.parametrize("table", first_by_day(["fills_10s", "redundancy_10s", "hot_prefixes_10s"]))
def test_a_wrong_figure_behind_the_beginning_is_found(table: str) -> None:
    column = {"fills_10s": "peer_blocks", "redundancy_10s": "owners_1", "hot_prefixes_10s": "shared_tokens"}
    records = walk(3)
    begin, saved_at = len(records) // 4, len(records) // 2
    rows = rows_of(records, FLEET)
    beginning = undone(records, begin, saved_at).beginning
    since = compared(records, rows, begin, beginning).compared_from[table]
    name = column[table]
    wrong = max((row for row in rows if table == row.TABLE and row.window > since), key=window_of)
    value = getattr(wrong, name)
    rows[rows.index(wrong)] = msgspec.structs.replace(wrong, **{name: value + 7})
    [difference] = compared(records, rows, begin, beginning).kept
    assert (difference.table, difference.expected, difference.found) == (
        table,
        {name: value},
        {name: value + 7},
    )


def test_a_row_that_is_missing_behind_the_beginning_is_found() -> None:
    records = walk(5)
    begin = len(records) // 4
    rows = rows_of(records, FLEET)
    beginning = undone(records, begin, len(records) // 2).beginning
    last = max((row for row in rows if isinstance(row, FillsRow)), key=window_of)
    rows.remove(last)
    kinds = {one.kind for one in compared(records, rows, begin, beginning).kept if one.table == "fills_10s"}
    assert kinds == {"missing"}


def test_an_agent_that_began_with_nothing_is_recounted_in_full() -> None:
    """As after a rebuild: the log begins where the state does, and offsets go on."""
    records = walk(7)
    begin = len(records) // 3
    state = FleetState(0, FLEET, carry_seconds=3600)
    table: dict[Any, Any] = {}
    for number, record in enumerate(records[begin:], begin):
        state.apply(2 * number, record)
        table |= {key_of(row): row for row in state.cut(0.0).rows}
    # All that the agent followed is in the log: strays are no contradiction, and nothing is taken over.
    saved = saved_in(saved_after(records[begin:], first=begin), 0, SHARDS)
    undoing = Undoing(saved)
    for record in reversed(records[begin:]):
        undoing.undo(record)
    beginning = undoing.beginning(written_at=0.0, ahead=0.0)
    assert beginning.whole
    findings = compared(records, list(table.values()), begin, beginning)
    assert findings.equal, findings.kept[:3]
    assert sum(findings.compared.values()) == len(table)
    assert not findings.compared_from


def test_what_came_before_may_be_ahead_of_the_log_by_both_tolerances() -> None:
    records, worker = walk(3), Worker(max_clock_ahead_seconds=30.0)
    ahead = worker.max_clock_ahead_seconds
    found = undone(records, len(records) // 4, len(records) // 2)
    written_at = found.saved.clock - 200.0
    batch = Batch(0, written_at + 2 * ahead, written_at + ahead, [])
    times.believe_the_log(EventsRecord("r", "m", "m/d", 0, 1, [batch]), written_at, worker)
    latest = times.event_time(batch.ts, batch.received_at, worker)
    assert latest == written_at + 2 * ahead
    beginning = found.undoing.beginning(written_at=written_at, ahead=ahead)
    assert times.end_of(times.window_of(latest)) <= beginning.since < found.saved.clock


def test_a_checkpoint_that_the_log_contradicts_is_not_believed() -> None:
    records = walk(2)
    latest = saved_after(records)
    saved = saved_in(latest, 0, SHARDS)
    assert saved is not None
    pool = next(pool for pool, held in saved.held.items() if held)
    named = {
        int.from_bytes(changes.hashes[at : at + 8], "big")
        for record in records[len(records) // 4 :]
        for said in record.sources
        if (said.replica, said.dp_rank) == pool.source
        for changes in said.changes
        if (changes.medium, changes.group_idx) == (pool.medium, pool.space.group_idx)
        for at in range(0, len(changes.hashes), 8)
    }
    one = next(block for block in saved.held[pool] if block in named)
    del saved.held[pool][one]
    undoing = Undoing(saved)
    for record in reversed(records[len(records) // 4 :]):
        undoing.undo(record)
    assert undoing.contradictions
    with pytest.raises(BeginningUnknown, match=CONTRADICTED):
        undoing.beginning(written_at=0.0, ahead=0.0)


def test_a_checkpoint_is_read_or_refused() -> None:
    assert saved_in({}, 0, 8) is None
    latest = saved_after(walk(1))
    with pytest.raises(CheckpointUnclear, match="may be of several groups"):
        saved_in(latest, 0, 1)
    with pytest.raises(CheckpointUnclear, match="damaged"):
        saved_in({HEAD_KEY: latest[HEAD_KEY]}, 0, SHARDS)
    with pytest.raises(CheckpointUnclear, match="another format"):
        saved_in({HEAD_KEY: msgspec.msgpack.encode(FleetHead(1, format=9))}, 0, SHARDS)


def test_keys_are_turned_back_into_hashes() -> None:
    rng = random.Random(1)
    for number in range(200):
        constant, block = constant_of(number), rng.getrandbits(64)
        key = int(key_of_hash(np.uint64(block), np.uint64(constant)))
        assert hash_of(key, constant) == block
