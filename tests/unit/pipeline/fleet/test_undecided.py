"""Changes of engines that have not told whether they receive KV: all wait for them, but not for long."""

from __future__ import annotations

import pytest

from pipeline.errors import CheckpointDamaged
from pipeline.fleet.state import FleetState
from pipeline.fleet.undecided import LONGEST, Undecided
from pipeline.verify.fleet import undecided as recounted
from schemas.fleet_checkpoints import FleetUndecided
from schemas.fleet_rows import FillsRow
from schemas.residency import EVICTED, ResidencyRecord, SourceChanges
from schemas.settings import Fleet
from tests.support.fleet_recount import agree, compared, rows_of
from tests.support.inputs.residency_records import changes, said

START = 1_000.0
ORDER = Fleet().order_seconds


def came(
    replica: str, at: float, *blocks: int, receives: bool = False, undecided: bool = False
) -> SourceChanges:
    end = blocks[-1] if receives or undecided else 0
    return said(replica, changes(dict.fromkeys(blocks, at), end=end), receives=receives, undecided=undecided)


class Shard:
    """One that reads records of one partition."""

    def __init__(self, **settings: int) -> None:
        self.settings = Fleet(**settings)
        self.state = FleetState(0, self.settings, carry_seconds=0.0)
        self.saved: dict[bytes, bytes] = {}
        self.causes: dict[str, dict[str, int]] = {}

    def read(self, read_to: float, *sources: SourceChanges) -> dict[str, dict[str, int]]:
        """Return the blocks of each replica by cause, after a record."""
        offset = self.state.next_offset
        self.state.apply(offset, ResidencyRecord(0, 0, 0, [*sources], 1, read_to, 0.0 if sources else None))
        cut = self.state.cut(3600.0 * offset)  # a base each time
        self.saved |= cut.checkpoints
        for row in cut.rows:
            if isinstance(row, FillsRow):
                named = ("transferred", "peer", "cold")
                found = {cause: getattr(row, f"{cause}_blocks") for cause in named}
                self.causes[row.replica] = {cause: blocks for cause, blocks in found.items() if blocks}
        return self.causes

    def restored(self) -> None:
        self.state = FleetState(0, self.settings, carry_seconds=0.0, latest=self.saved)


@pytest.mark.parametrize(
    ("decided", "cause"),
    [
        (said("d", receives=True), "transferred"),
        (said("d", receives=False), "peer"),
        (said("d", receives=True, incarnation=2), "peer"),
    ],
)
def test_all_that_may_come_later_waits_for_it(decided: SourceChanges, cause: str) -> None:
    shard = Shard()
    prefill, decode = came("p", START, 1, 2), came("d", START + 1.0, 1, 2, undecided=True)
    assert shard.read(START + 1.0, prefill, decode) == {}
    assert shard.read(START + 9.0, came("p", START + 2.0, 3)) == {"p": {"cold": 2}}
    shard.restored()
    assert shard.read(START + 10.0, decided) == {"p": {"cold": 3}, "d": {cause: 2}}
    assert not shard.state.take_out_of_order()


def test_nobody_waits_for_ever() -> None:
    shard = Shard()
    shard.read(START, came("p", START, 1, 2, 3), came("d", START + 1.0, 1, 2, undecided=True))
    assert shard.read(START + 1.0 + ORDER + LONGEST, came("p", START + 2.0, 9)) == {"p": {"cold": 3}}
    assert shard.read(START + 1.1 + ORDER + LONGEST) == {"p": {"cold": 4}, "d": {"peer": 2}}
    assert shard.state.take_out_of_order() == {"unknown_role": 2}
    shard.restored()
    late = START + 20.0
    assert shard.read(late + ORDER, came("d", late, 3, undecided=True))["d"] == {"peer": 1}
    shard.read(late + 1.0 + ORDER, said("d", receives=False))
    shard.read(late + 1.0 + ORDER, came("p", late + 1.0, 4), came("d", late + 1.0, 4, undecided=True))
    assert shard.read(late + 5.0 + ORDER, said("d", receives=True))["d"] == {"peer": 1, "transferred": 1}
    assert not shard.state.take_out_of_order()


def test_a_source_that_was_forgotten_may_wait_again() -> None:
    later = START + 5_000.0
    said_at = [
        (START, [came("p", START, 1), came("d", START + 1.0, 1, undecided=True)]),
        (START, [said("d", changes({1: START + 2.0}, EVICTED), undecided=True)]),
        (later, [came("p", later, 2)]),
        (later + 20.0, [came("p", later + 20.0, 3)]),
        (later + 40.0, [came("p", later + 40.0, 4)]),
        (later + 40.0, [came("d", later + 40.0, 1, undecided=True)]),
        (later + 60.0, [said("d", receives=True)]),
    ]
    log = [ResidencyRecord(0, 0, 0, sources, 1, read_to, 0.0) for read_to, sources in said_at]
    rows = rows_of(log, Fleet(), forget=100.0)
    agree(compared(log, rows, Fleet(), forget=100.0), rows)
    of_d = [row for row in rows if isinstance(row, FillsRow) and row.replica == "d"]
    assert [(row.peer_blocks, row.transferred_blocks) for row in of_d] == [(1, 0), (0, 1)]


def test_agent_and_recount_give_up_in_the_order_in_which_changes_came() -> None:
    names = [f"r{number * 7 % 30}" for number in range(30)]
    record = ResidencyRecord(0, 0, 0, [came(name, START, 1, undecided=True) for name in names], 1, START, 0.0)
    agent, recount = Undecided({}), recounted.Undecided(FleetUndecided())
    agent.decided(record)
    recount.of(record)
    given_up = agent.given_up(record, START + LONGEST + 1.0, 1000)
    assert [late.sources[0].replica for late in given_up] == names
    assert recount.give_up(record, START + LONGEST + 1.0, 1000) == given_up


def test_no_more_wait_than_changes_may() -> None:
    shard = Shard(max_waiting=3)
    assert shard.read(START, came("d", START, 1, 2, 3, undecided=True)) == {}
    assert shard.read(START, came("e", START + 1.0, 4, undecided=True)) == {"d": {"cold": 3}}
    assert shard.state.take_out_of_order() == {"unknown_role": 4, "too_many_wait": 3}


def test_what_no_record_may_have_is_a_damaged_base() -> None:
    shard = Shard()
    shard.read(START, came("d", START, 1, undecided=True))
    shard.read(START + 1.0, came("p", START, 1))
    # The kind of the change, in the packed record.
    saved = {key: value.replace(b"\xc4\x01\x00", b"\xc4\x01\x77") for key, value in shard.saved.items()}
    assert saved != shard.saved
    with pytest.raises(CheckpointDamaged):
        FleetState(0, Fleet(), carry_seconds=0.0, latest=saved)
