"""A source is forgotten by the clock of its partition's log, and comes back as one that joins late."""

from __future__ import annotations

from typing import Any

import pytest

from schemas.events import Batch, Closed, Event, Opened, SourceStatus, Stored
from schemas.residency import CLEARED, FILLED
from schemas.rows import OccupancyRow, SourceRow
from schemas.settings import Worker
from tests.support.inputs.event_records import batch, notice, opened, record
from tests.support.replica_agent import ReplicaAgent, sources_of

START = 1_800_000_000.0
BLOCKS = bytes(range(1, 17))


class Log(ReplicaAgent):
    """A partition with a source that is heard every ten seconds, and others that a test adds."""

    def __init__(self) -> None:
        super().__init__(Worker(forget_seconds=600.0))
        self.at = START
        self.rows: list[Any] = []
        self.changes: list[tuple[str, int, bytes]] = []

    def notice(self, replica: str, event: Event) -> None:
        self.apply(record(notice(self.at, event), replica=replica))

    def stores(self, replica: str, seq: int, **others: Any) -> None:
        self.apply(record(batch(seq, self.at, Stored(BLOCKS, 16)), replica=replica, **others))

    def pass_by(self, seconds: float, step: float = 10.0) -> None:
        for _ in range(int(seconds / step)):
            self.at += step
            self.notice("alive", SourceStatus(connected=True))

    def look(self) -> None:
        """Save, and note what is written."""
        cut = self.cut(self.at)
        self.rows += cut.rows
        for source in sources_of(cut):
            for part in source.changes:
                self.changes += [(source.replica, kind, part.hashes) for kind in part.kinds]

    def restart(self) -> None:
        self.look()
        self.killed()

    def life(self, replica: str) -> SourceRow:
        return [row for row in self.rows if isinstance(row, SourceRow) and row.replica == replica][-1]


def begun(closed: str = "") -> Log:
    log = Log()
    log.stores("alive", 0)
    log.notice("gone", Opened(0, complete=True))
    log.stores("gone", 0)
    if closed:
        log.notice("gone", Closed(closed))
    log.look()
    return log


@pytest.mark.parametrize("closed", ["", "removed"], ids=["unseen", "closed"])
@pytest.mark.parametrize("restored", [False, True], ids=["", "restored"])
def test_a_silent_source_leaves_state_checkpoint_and_fleet(closed: str, restored: bool) -> None:
    log = begun(closed)
    log.pass_by(590)
    assert ("gone", 0) in log.state.sources
    log.look()
    if restored:
        log.restart()
    log.pass_by(20)
    assert set(log.state.sources) == {("alive", 0)}
    log.look()
    assert log.state.take_forgotten() == 1
    assert not any(b"gone" in key for key in log.latest)
    kinds = [kind for replica, kind, _ in log.changes if replica == "gone"]
    assert kinds == [FILLED, FILLED, CLEARED, CLEARED]
    assert log.life("gone").closed_reason == (closed or "forgotten")
    assert log.life("gone").closed_at is not None
    last = [row for row in log.rows if isinstance(row, OccupancyRow) and row.replica == "gone"][-1]
    assert last.blocks == 0


def test_it_comes_back_as_one_that_joins_late() -> None:
    log = begun()
    log.pass_by(700)
    log.stores("gone", 7)
    log.look()
    assert (log.life("gone").trust, log.life("gone").first_seq) == ("partial", 7)
    health = log.state.sources["gone", 0].head.health
    assert (health.lost_batches, health.gap_batches, health.restarts) == (0, 0, 0)


def test_a_new_life_that_is_seen_from_its_beginning_is_complete() -> None:
    log = begun()
    log.pass_by(700)
    log.apply(record(opened(log.at), replica="gone", life=2))
    log.stores("gone", 0, life=2)
    log.look()
    assert (log.life("gone").trust, log.life("gone").incarnation) == ("complete", 2)


def test_no_time_goes_by_while_nobody_publishes() -> None:
    log = begun()
    log.pass_by(500_000, step=100_000.0)
    assert ("gone", 0) in log.state.sources


def test_a_clock_that_is_set_wrong_makes_nobody_silent() -> None:
    log = begun()
    for year in (1, 0, 2, 0, 3, 0):
        right, log.at = log.at, log.at + year * 31_536_000
        log.notice("alive", SourceStatus(connected=True))
        log.at = right
    assert ("gone", 0) in log.state.sources


@pytest.mark.parametrize("restored", [False, True], ids=["", "restored"])
def test_connectors_whose_clocks_differ_make_nobody_silent(restored: bool) -> None:
    log = begun()
    for number in range(500):
        log.at += 0.1
        for apart in (0.0, -60.0):
            said = Batch(None, log.at, log.at + apart, [SourceStatus(connected=True)])
            log.apply(record(said, replica="alive"))
        if restored and number == 250:
            log.restart()
    assert ("gone", 0) in log.state.sources
    log.pass_by(500)
    assert ("gone", 0) in log.state.sources
    log.pass_by(100)
    assert ("gone", 0) not in log.state.sources


def test_sources_that_rotate_leave_a_bounded_state() -> None:
    log = Log()
    sizes = []
    for number in range(300):
        name = f"pod-{number}"
        log.notice(name, Opened(0, complete=True))
        log.stores(name, 0)
        log.pass_by(30)
        log.notice(name, Closed("removed"))
        log.look()
        sizes.append((len(log.state.sources), len(log.latest)))
    assert max(sizes[30:]) == max(sizes[-100:])
    assert len(log.state.sources) < 25
