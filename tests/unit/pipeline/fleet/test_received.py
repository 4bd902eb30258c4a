"""What sources that receive KV announce, by hand: whose answer counts for a run, and what follows from it."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any

import pytest

from pipeline.fleet import transfers
from pipeline.fleet.kernel import transfers as kernel
from pipeline.fleet.state import FleetState
from pipeline.verify.fleet.transfers import run_of
from schemas.fleet_rows import FillsRow, RedundancyRow
from schemas.residency import (
    CLEARED,
    EVICTED,
    FILLED,
    Decisions,
    ResidencyChanges,
    ResidencyRecord,
    SourceChanges,
)
from schemas.settings import Fleet
from tests.support.fleet_recount import agree, compared, rows_of
from tests.support.inputs.residency_records import changes, said

START = 1_000_000.0
SIZE = 16
"""Tokens of a block."""
ELSEWHERE = 1 << 40
"""A block of another shard."""


def records(sources: Sequence[SourceChanges | Decisions]) -> list[ResidencyRecord]:
    return [
        ResidencyRecord(1, 1, 0, [], decisions=one)
        if isinstance(one, Decisions)
        else ResidencyRecord(0, 0, number, [one])
        for number, one in enumerate(sources)
    ]


def checked(log: list[ResidencyRecord]) -> list[Any]:
    """Return the rows of the agent, which are those of the recount."""
    rows = rows_of(log, Fleet())
    agree(compared(log, rows, Fleet()), rows)
    return rows


def test_sessions_and_groups_that_announce_the_same_at_one_time_have_answers_of_their_own() -> None:
    at = START + 1.0
    held = changes({1: START}), changes({1: START}, group=1)
    first = changes({1: at}, end=ELSEWHERE), changes({1: at}, CLEARED)
    second = changes({1: at}, end=ELSEWHERE), changes({1: at}, group=1, end=ELSEWHERE)
    answers = {run_of(ELSEWHERE, at, ("d", 0), *session): known for session, known in SESSIONS.items()}
    log = [
        said("p", *held),
        said("d", *first, receives=True),
        said("d", *second, incarnation=2, receives=True),
        Decisions(1, at, struct.pack("<3Q", *answers), bytes(answers.values())),
    ]
    causes = {
        row.group_idx: (row.filled_blocks, row.peer_blocks, row.transferred_blocks)
        for row in checked(records(log))
        if isinstance(row, FillsRow) and row.replica == "d"
    }
    assert causes == {0: (2, 1, 1), 1: (1, 1, 0)}


SESSIONS = {(1, 0): 0, (2, 0): 1, (2, 1): 0}
"""(Incarnation, group): whether the last block of the run was stored before."""


def fills_of(rows: list[Any], replica: str) -> FillsRow:
    [row] = [row for row in rows if isinstance(row, FillsRow) and row.replica == replica]
    return row


def gpu_at_the_end(rows: list[Any]) -> RedundancyRow:
    last: RedundancyRow = max(
        (row for row in rows if isinstance(row, RedundancyRow) and row.medium == "gpu"),
        key=lambda row: row.window,
    )
    return last


def test_what_was_evicted_and_came_by_transfer_was_moved_again() -> None:
    def came(*blocks: int, later: float) -> SourceChanges:
        return said("d", changes(dict.fromkeys(blocks, START + later), end=blocks[-1]), receives=True)

    def left(*blocks: int, kind: int, later: float) -> SourceChanges:
        return said("d", changes(dict.fromkeys(blocks, START + later), kind), receives=True)

    log = [
        said("p", changes({1: START, 2: START})),
        came(1, 2, later=1.0),
        left(1, 2, kind=EVICTED, later=2.0),
        came(1, 2, later=3.0),
        left(1, kind=CLEARED, later=4.0),
        came(1, later=5.0),
        left(2, kind=EVICTED, later=6.0),
        # Computed, as the run ends with a block that nobody had.
        came(2, 3, later=7.0),
    ]
    row = fills_of(checked(records(log)), "d")
    assert (row.filled_tokens, row.transferred_tokens) == (7 * SIZE, 5 * SIZE)
    assert row.transferred_again_tokens == 2 * SIZE
    assert (row.peer_and_evicted_tokens, row.cold_tokens) == (SIZE, SIZE)


def test_a_run_whose_last_block_is_missing_is_given_up_though_its_shard_decides_on_nothing_more() -> None:
    """The record with that block was set aside, say, and what comes later is of other sources."""
    state, other = (FleetState(shard, Fleet(), carry_seconds=0.0, shards=2) for shard in range(2))
    went = iter(range(100))

    def applied(shard: FleetState, *sources: SourceChanges, decisions: Decisions | None = None) -> None:
        shard.apply(next(went), ResidencyRecord(0, 0, 0, [*sources], decisions=decisions))

    for one in (state, other):
        applied(one, said("p", changes({1: START, 2: START})), said("d", changes({2: START + 1}, end=2)))
    applied(other, said("d", changes({2: START + 1}, end=2), receives=True))
    applied(state, said("d", changes({1: START + 2}, end=ELSEWHERE), receives=True))
    for decisions in other.cut(0.0).decisions:
        applied(state, decisions=decisions)
    for later in (30.0, 61.0, 92.0, 123.0):
        for one, another in ((state, other), (other, state)):
            applied(one, said("p", changes({1000 + round(later): START + later})))
            for decisions in one.cut(0.0).decisions:
                applied(another, decisions=decisions)
    assert state.take_out_of_order() == {"undecided": 1}
    assert not [*other.cut(0.0).decisions], "nothing new, and too early to report again"


def test_a_single_shard_gives_up_by_its_own_clock() -> None:
    """The last block may be one that a coarse block took over in the same record: it never counts."""
    d = said("d", changes({2: START + 1}, end=ELSEWHERE), receives=True)
    later = [said("p", changes({10 + after: START + after})) for after in (60, 61, 62)]
    log = records([said("p", changes({2: START})), d, *later])
    assert fills_of(checked(log), "d").peer_tokens == SIZE
    state = FleetState(0, Fleet(), carry_seconds=0.0)
    given_up = []
    for offset, record in enumerate(log):
        state.apply(offset, record)
        given_up.append(state.take_out_of_order()["undecided"])
    assert given_up == [0, 0, 0, 0, 1]


def test_a_run_is_given_up_though_no_shard_ever_decided() -> None:
    states = [FleetState(shard, Fleet(), carry_seconds=0.0, shards=2) for shard in range(2)]
    went = iter(range(100))
    for state in states:
        state.apply(next(went), ResidencyRecord(0, 0, 0, [said("p", changes({1: START}))]))
    d = said("d", changes({1: START + 1}, end=ELSEWHERE), receives=True)
    states[0].apply(next(went), ResidencyRecord(0, 0, 0, [d]))
    for later in (10, 40, 70, 100):
        for state, other in (states, states[::-1]):
            state.apply(next(went), ResidencyRecord(0, 0, 0, [said("p", changes({later: START + later}))]))
            for decisions in state.cut(0.0).decisions:
                other.apply(next(went), ResidencyRecord(0, 0, 0, [], decisions=decisions))
    assert states[0].take_out_of_order() == {"undecided": 1}


def test_fills_that_wait_for_long_are_compared_with_what_is_new_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """While another shard is away many wait; each record would cost as much as all of them otherwise."""
    compared_with: list[tuple[int, int]] = []

    def decide(fills: Any, runs: Any, states: Any) -> None:
        compared_with.append((len(fills), len(runs)))
        kernel.decide(fills, runs, states)

    monkeypatch.setattr(transfers, "decide", decide)
    state = FleetState(0, Fleet(), carry_seconds=0.0, shards=2)
    log = [said("p", changes(dict.fromkeys(range(1, 60), START)))]
    log += [said("d", changes(dict.fromkeys(range(1, 51), START + 1), end=ELSEWHERE), receives=True)]
    log += [said("d", changes({block: START + block}, end=block), receives=True) for block in range(51, 56)]
    for offset, one in enumerate(log):
        state.apply(offset, ResidencyRecord(0, 0, 0, [one]))
    state.apply(len(log), ResidencyRecord(1, 1, 0, [], decisions=Decisions(1, START + 90, b"", b"")))
    assert compared_with == [each for waits in range(50, 55) for each in ((waits, 1), (1, waits - 49))]
    assert state.take_out_of_order() == {"undecided": 50}
    of_d = [row for row in state.cut(0.0).rows if isinstance(row, FillsRow) and row.replica == "d"]
    assert [(row.peer_tokens, row.transferred_tokens) for row in of_d] == [(50 * SIZE, 0), (0, 5 * SIZE)]


def test_what_receivers_hold_is_no_peer_of_others_and_no_copy_too_many() -> None:
    def at(later: float, *blocks: int, kind: int = FILLED, end: int = 0) -> ResidencyChanges:
        return changes(dict.fromkeys(blocks, START + later), kind, end=end)

    log = [
        said("p0", at(0.0, 1)),
        said("d0", at(1.0, 1, end=1), at(1.0, 9, end=9), receives=True),
        said("p0", at(2.0, 1, kind=EVICTED)),
        # Only d0 has block 1, which p0 had evicted, and block 9, an answer.
        said("p1", at(3.0, 1)),
        said("p0", at(4.0, 1, 9)),
        said("p1", at(5.0, 9)),
        # A decode replica can be sent to where another one has it.
        said("d1", at(6.0, 9, 50, end=50), receives=True),
        # Two answers that were evicted since.
        said("d0", at(6.5, 70, 71, end=71), at(7.0, 70, 71, kind=EVICTED), receives=True),
        said("p0", at(8.0, 70), at(9.0, 70, kind=EVICTED)),
        said("d1", at(9.0, 71, 72, end=72), at(9.5, 71, 72, kind=EVICTED), receives=True),
        # What p0 evicted as well is a matter of its capacity.
        said("p1", at(9.6, 70), at(9.6, 70, kind=EVICTED)),
    ]
    rows = checked(records(log))
    found = {name: fills_of(rows, name) for name in ("p0", "p1", "d0", "d1")}
    assert (found["p1"].evicted_elsewhere_tokens, found["p1"].peer_tokens) == (2 * SIZE, SIZE)
    assert (found["p0"].peer_and_evicted_tokens, found["p0"].peer_tokens) == (SIZE, SIZE)
    assert found["p0"].evicted_elsewhere_tokens == SIZE
    assert (found["d0"].transferred_tokens, found["d0"].cold_tokens) == (SIZE, 3 * SIZE)
    assert (found["d1"].peer_tokens, found["d1"].cold_tokens) == (SIZE, 2 * SIZE)
    assert found["d1"].evicted_elsewhere_tokens == SIZE
    parts = {
        name: (row.peer_at_receivers_tokens, row.evicted_at_receivers_tokens) for name, row in found.items()
    }
    assert parts == {"p0": (SIZE, SIZE), "p1": (0, 0), "d0": (0, 0), "d1": (0, 0)}
    # Block 1 is on p0, p1 and d0, block 9 on all, 50 on d1: one copy on either side is needed.
    row = gpu_at_the_end(rows)
    assert (row.owners_1, row.owners_2, row.owners_3, row.owners_4_7) == (1, 1, 1, 0)
    assert (row.unique_tokens, row.physical_tokens, row.received_tokens) == (3 * SIZE, 8 * SIZE, 2 * SIZE)


def test_what_a_receiver_keeps_on_a_lower_tier_it_received() -> None:
    def on(medium: str, later: float, kind: int = FILLED) -> ResidencyChanges:
        return changes({1: START + later}, kind, medium=medium)

    log = [
        said("d", on("gpu", 1.0), on("cpu", 1.0), receives=True),
        said("d", on("gpu", 2.0, EVICTED), receives=True),
        # Its engine says no more that it receives, but the copy is the same.
        said("d", on("gpu", 3.0)),
        said("p", on("gpu", 4.0)),
        said("d", on("gpu", 5.0, EVICTED), on("cpu", 5.0, EVICTED)),
        said("d", on("gpu", 6.0)),
    ]
    rows = checked(records(log))
    assert fills_of(rows, "d").promoted_tokens == SIZE
    assert fills_of(rows, "d").peer_and_evicted_tokens == SIZE
    assert (fills_of(rows, "p").peer_tokens, fills_of(rows, "p").peer_at_receivers_tokens) == (SIZE, SIZE)
    row = gpu_at_the_end(rows)
    assert (row.owners_2, row.received_tokens) == (1, 0), "what came back was computed"
