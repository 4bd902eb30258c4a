"""A source is forgotten by the clock of its partition's log, and comes back as one that joins late."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from pipeline.residency.partition import PartitionState
from schemas.events import Batch, Closed, Event, EventsRecord, Opened, SourceStatus, Stored
from schemas.residency import CLEARED, FILLED, ResidencyRecord
from schemas.rows import OccupancyRow, SourceRow
from schemas.settings import Worker

START = 1_800_000_000.0
SETTINGS = Worker(forget_seconds=600.0)
BLOCKS = bytes(range(1, 17))


class Log:
    """A partition with a source that is heard every ten seconds, and others that a test adds."""

    def __init__(self) -> None:
        self.state = PartitionState(0, SETTINGS, shards=1)
        self.offset = 0
        self.at = START
        self.rows: list[Any] = []
        self.changes: list[tuple[str, int, bytes]] = []
        self.latest: dict[bytes, bytes] = {}
        self.log: list[EventsRecord] = []

    def say(self, replica: str, *batches: Batch, incarnation: int = 1) -> None:
        record = EventsRecord(replica, "m", "m/d", 0, incarnation, list(batches))
        for batch in batches:
            if batch.seq is not None and record.first_seq is None:
                record.first_seq = batch.seq
        self.state.apply(self.offset, record)
        self.log.append(record)
        self.offset += 1

    def notice(self, replica: str, event: Event) -> None:
        self.say(replica, Batch(None, self.at, self.at, [event]))

    def stores(self, replica: str, seq: int, **others: Any) -> None:
        self.say(replica, Batch(seq, self.at, self.at, [Stored(BLOCKS, 16)]), **others)

    def pass_by(self, seconds: float, step: float = 10.0) -> None:
        for _ in range(int(seconds / step)):
            self.at += step
            self.notice("alive", SourceStatus(connected=True))

    def restart(self) -> None:
        """Save, and let another state go on: it applies what bases lack once more."""
        self.cut()
        self.state = PartitionState.restore(0, SETTINGS, shards=1, latest=self.latest)
        for offset in range(self.state.next_offset, self.offset):
            self.state.apply(offset, self.log[offset])

    def cut(self) -> None:
        cut = self.state.cut(self.at)
        self.rows += cut.rows
        for _, _, value in cut.residency:
            for source in msgspec.msgpack.decode(value, type=ResidencyRecord).sources:
                for part in source.changes:
                    self.changes += [(source.replica, kind, part.hashes) for kind in part.kinds]
        for key, record in cut.checkpoints:
            if record is None:
                del self.latest[key]
            else:
                self.latest[key] = record

    def life(self, replica: str) -> SourceRow:
        return [row for row in self.rows if isinstance(row, SourceRow) and row.replica == replica][-1]


def begun(closed: str = "") -> Log:
    log = Log()
    log.stores("alive", 0)
    log.notice("gone", Opened(0, complete=True))
    log.stores("gone", 0)
    if closed:
        log.notice("gone", Closed(closed))
    log.cut()
    return log


@pytest.mark.parametrize("closed", ["", "removed"], ids=["unseen", "closed"])
@pytest.mark.parametrize("restored", [False, True], ids=["", "restored"])
def test_a_silent_source_leaves_state_checkpoint_and_fleet(closed: str, restored: bool) -> None:
    log = begun(closed)
    log.pass_by(590)
    assert ("gone", 0) in log.state.sources
    log.cut()
    if restored:
        log.restart()
    log.pass_by(20)
    assert set(log.state.sources) == {("alive", 0)}
    log.cut()
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
    log.cut()
    assert (log.life("gone").trust, log.life("gone").first_seq) == ("partial", 7)
    health = log.state.sources["gone", 0].head.health
    assert (health.lost_batches, health.gap_batches, health.restarts) == (0, 0, 0)


def test_a_new_life_that_is_seen_from_its_beginning_is_complete() -> None:
    log = begun()
    log.pass_by(700)
    log.say("gone", Batch(None, log.at, log.at, [Opened(0, complete=True)]), incarnation=2)
    log.stores("gone", 0, incarnation=2)
    log.cut()
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
            log.say("alive", Batch(None, log.at, log.at + apart, [SourceStatus(connected=True)]))
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
        log.cut()
        sizes.append((len(log.state.sources), len(log.latest)))
    assert max(sizes[30:]) == max(sizes[-100:])
    assert len(log.state.sources) < 25
