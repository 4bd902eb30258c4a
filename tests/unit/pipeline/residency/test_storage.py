"""Media on which a block is a file: one copy however often it comes, and files outlive the engine."""

from __future__ import annotations

import msgspec
import pytest

from pipeline.verify.replica.source import SourceRecount
from schemas.events import Cleared, Closed, Event, EventsRecord, Gap, Removed, Stored
from schemas.fleet_rows import RedundancyRow
from schemas.residency import ResidencyRecord
from schemas.rows import FlowRow, OccupancyRow
from schemas.settings import Fleet, Worker
from tests.support import fleet_recount
from tests.support.fleet_recount import agree, compared
from tests.support.following_index import FollowingIndex
from tests.support.inputs.event_records import batch, notice, opened, record
from tests.support.inputs.packed import packed
from tests.support.replica_agent import ReplicaAgent, residency_of, rows_of

NOW = 1_800_000_000.0
LATER = 100.0
"""Seconds from one session to the next."""


def life(number: int, *events: Event, ended: str = "", domain: str = "d") -> EventsRecord:
    at = NOW + number * LATER
    closed = [notice(at, Closed(reason)) for reason in ended.split(", ") if reason]
    batches = [opened(at), batch(0, at, *events), *closed]
    return record(*batches, life=number, domain=domain, engine="vllm", may_reannounce=True)


def files(*hashes: int, medium: str = "storage", size: int = 16) -> Stored:
    return Stored(packed(*hashes), size, size * len(hashes), None, medium)


class Told:
    """What replica agent, fleet agent and index say after some records; recounts agree with both agents."""

    def __init__(self, *lives: EventsRecord, worker: Worker | None = None) -> None:
        agent, recount = ReplicaAgent(worker), SourceRecount("r", 0, worker or Worker())
        self.index = FollowingIndex(worker)
        residency: list[ResidencyRecord] = []
        cuts = []
        for offset, one in enumerate(lives):
            agent.apply(one)
            for each in (self.index.partition, recount):
                each.apply(offset, one)
            cuts.append(agent.cut(NOW))
            residency += residency_of(cuts[-1])
        self.marks = {
            (part.medium, part.store_only)
            for one in residency
            for said in one.sources
            for part in said.changes
        }
        occupancy = [row for cut in cuts for row in rows_of(cut, OccupancyRow)]
        newest = max(row.window for row in occupancy)
        self.rows = {row.medium: row for row in occupancy if row.window == newest}
        self.flows = {(row.medium, row.window): row for cut in cuts for row in rows_of(cut, FlowRow)}
        of_fleet = fleet_recount.rows_of(residency, Fleet())
        agree(compared(residency, of_fleet, Fleet()), of_fleet)
        self.owned = {row.medium: row.owners_1 for row in of_fleet if isinstance(row, RedundancyRow)}
        self._agrees(recount)

    def _agrees(self, recount: SourceRecount) -> None:
        for medium, group, held in recount.held(NOW):
            row, since = self.rows[medium], recount.trust.of(medium)
            assert row.store_only is recount.pools[medium, group].store_only
            assert (row.entries, row.blocks, row.trust) == (held.entries, held.blocks, since.trust)
            assert row.trust_since.timestamp() == since.at

    def cleared(self, medium: str) -> int:
        return sum(row.cleared_blocks for (of, _), row in self.flows.items() if of == medium)

    def found(self, *chain: int) -> tuple[int, bool]:
        """Return the tokens that the index finds on any tier, and whether that is an upper bound."""
        told = self.index.ask(*chain, at=NOW).get("r")
        match = told and told.ranks["0"]
        return (0, False) if match is None else (match.disk, match.upper_bound)


@pytest.mark.parametrize("medium", ["storage", "fs", "obj"])
@pytest.mark.parametrize("size", [16, 0], ids=["blocks", "placeholders"])
def test_a_file_that_is_handed_over_again_is_one(medium: str, size: int) -> None:
    first, again = files(11, medium=medium, size=size), files(12, medium=medium, size=size)
    told = Told(life(1, first, again, again, again))
    row = told.rows[medium]
    assert (row.entries, row.blocks, row.tokens, row.store_only) == (2, 2, 2 * size, True)
    assert row.trust == "partial"
    assert told.owned[medium] == 2


@pytest.mark.parametrize("medium", ["storage", "fs", "obj", "kvcr:cpu", "remote:storage"])
@pytest.mark.parametrize("ended", ["", "restarted"])
def test_what_outlives_the_engine_is_there_in_its_next_session(medium: str, ended: str) -> None:
    """Two files and a GPU block, then a session that announces one new file and one of the two again."""
    told = Told(
        life(1, files(11, medium="gpu"), files(11, 12, medium=medium), ended=ended),
        life(2, files(11, 13, medium=medium), files(9, medium="gpu")),
    )
    row = told.rows[medium]
    assert (row.entries, row.blocks, row.tokens, row.trust) == (3, 3, 48, "partial")
    assert row.trust_since.timestamp() == NOW + LATER
    assert (told.rows["gpu"].entries, told.rows["gpu"].trust) == (1, "complete")
    assert (told.cleared(medium), told.cleared("gpu")) == (0, 1)
    assert told.owned[medium] == 3
    # 11 is no longer on the GPU: both are found below it.
    assert told.found(11, 12) == (32, row.store_only)


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (life(1, files(11), ended="silent"), life(2, files(13))),
        (life(1, files(11), ended="removed"), life(2, files(13))),
        (life(1, files(11)), life(2, files(13), domain="other model")),
        (life(1, files(11), ended="restarted, removed"), life(2, files(13))),
    ],
    ids=["silent", "removed", "another model", "removed after a restart"],
)
def test_what_nobody_can_reach_any_more_is_gone(first: EventsRecord, second: EventsRecord) -> None:
    told = Told(first, second)
    assert (told.rows["storage"].entries, told.rows["storage"].trust) == (1, "partial")
    assert told.rows["storage"].trust_since.timestamp() == NOW + 2 * LATER
    assert told.cleared("storage") == 1
    assert (told.found(11), told.found(13)) == ((0, False), (16, True))


def test_what_was_lost_stays_lost_where_blocks_stay() -> None:
    """A removal that was missed leaves a block for ever, as far as anybody knows, until its owner clears."""
    first = life(1, files(11, medium="kvcr:cpu"), files(1, medium="gpu"))
    first.batches.append(notice(NOW + LATER, Gap(1, 2, "not_replayed")))
    told = Told(first, life(2, files(13, medium="kvcr:cpu"), files(1, medium="gpu")))
    assert (told.rows["kvcr:cpu"].entries, told.rows["kvcr:cpu"].trust) == (2, "degraded")
    assert told.rows["gpu"].trust == "complete"
    cleared = Told(first, life(2, files(13, medium="kvcr:cpu"), Cleared("kvcr:")))
    assert (cleared.rows["kvcr:cpu"].entries, cleared.rows["kvcr:cpu"].trust) == (0, "partial")


def test_a_block_that_its_owner_removes_in_a_later_session_is_evicted() -> None:
    told = Told(
        life(1, files(11, 12, medium="kvcr:cpu")),
        life(2, Removed(packed(11), "kvcr:cpu")),
    )
    assert told.rows["kvcr:cpu"].entries == 1
    assert sum(row.evicted_blocks for row in told.flows.values()) == 1
    assert told.owned["kvcr:cpu"] == 1


@pytest.mark.parametrize("removed_first", [False, True])
def test_who_does_not_announce_all_that_leaves_goes_on_so_in_all_three(removed_first: bool) -> None:
    """Mooncake's clients remove objects, and it says so; what it evicts it does not announce.

    Block 11 may be gone, so that nobody can be told to ask there, and only two of three blocks are held.
    """
    stores = [Stored(packed(block), 16, 16, None, "cpu", "cpu", store_only=True) for block in (11, 12, 13)]
    removal = Removed(packed(12), "cpu")
    told = Told(
        life(1, *([removal] if removed_first else []), *stores, removal),
        life(2, files(11, medium="gpu"), stores[0]),
    )
    assert (told.rows["cpu"].entries, told.rows["cpu"].store_only) == (1, True)
    assert told.found(11) == (16, False)
    before = Told(life(1, *([removal] if removed_first else []), *stores, removal))
    assert (before.rows["cpu"].entries, before.rows["cpu"].store_only, before.owned["cpu"]) == (2, True, 2)
    assert (before.found(11), before.found(12)) == ((16, True), (0, False))
    assert before.marks == {("cpu", True)}


@pytest.mark.parametrize(("most", "left"), [(6, 4), (5, 1)])
def test_what_nobody_says_was_deleted_does_not_fill_the_worker_for_ever(most: int, left: int) -> None:
    """Three files stay where six blocks are allowed; where five are, the next session begins anew."""
    told = Told(life(1, files(11, 12, 13)), life(2, files(14)), worker=Worker(max_blocks=most))
    assert told.rows["storage"].entries == left


def test_what_is_left_of_a_source_that_never_comes_back_is_gone_with_it() -> None:
    """It restarts, and nothing follows: when the source is forgotten, nobody holds its files any more."""
    worker = Worker(forget_seconds=600.0)
    agent, recount = ReplicaAgent(worker), SourceRecount("r", 0, worker)
    first = life(1, files(11, 12), ended="restarted")
    agent.apply(first)
    recount.apply(0, first)
    records = residency_of(agent.cut(NOW))
    before = len(records)
    # The clock of the partition moves by a minute at most from one record of a source to the next.
    for number in range(12):
        agent.apply(msgspec.structs.replace(life(2 + number), replica="other", incarnation=2 + number))
        records += residency_of(agent.cut(NOW))
        if ("r", 0) not in agent.state.sources:
            recount.forgotten(1 + number)
            break
    assert [held.blocks for _, _, held in recount.held(NOW)] == [0]
    held = [
        [row.owners_1 for row in fleet_recount.rows_of(part, Fleet()) if isinstance(row, RedundancyRow)]
        for part in (records[:before], records)
    ]
    # What is gone left in the last window that anything was heard in.
    assert held == [[2], [0]]
