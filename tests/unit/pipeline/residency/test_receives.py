"""Which engines receive KV that others computed: by role, or by what they count, until their session ends."""

from __future__ import annotations

import msgspec
import pytest

from pipeline.reading.records import read
from pipeline.residency.stream import receiving
from schemas.events import EngineCounters, Event, EventsRecord, Stored
from schemas.residency import SourceChanges
from schemas.rows import SourceRow
from schemas.settings import Worker
from tests.support.inputs import event_records
from tests.support.inputs.event_records import batch, notice, opened
from tests.support.replica_agent import ReplicaAgent, residency_of, rows_of, sources_of

NOW = 1_800_000_000.0
COUNTED = EngineCounters(transferred_tokens=16)
NONE = EngineCounters(transferred_tokens=0, computed_tokens=receiving.ENOUGH_TOKENS)
FEW = EngineCounters(transferred_tokens=0, computed_tokens=receiving.ENOUGH_TOKENS - 1)
IDLE = EngineCounters(transferred_tokens=0, computed_tokens=0)


def stored(number: int) -> Stored:
    return Stored(number.to_bytes(8, "big"), 16, 16)


def record(seq: int, *notices: Event, role: str = "", life: int = 1) -> EventsRecord:
    """Return a batch that stores a block, behind notices."""
    at = NOW + life * 1000 + seq
    before = [] if seq else [opened(at)]
    said = [notice(at, one) for one in notices]
    stores = batch(seq, at, stored(life * 1000 + seq + 1))
    return event_records.record(*before, *said, stores, role=role, life=life)


class Agent(ReplicaAgent):
    """Cuts a checkpoint after each record, and goes on from it as after a crash."""

    entries: list[SourceChanges]
    """What the last record told."""

    def told(self, said: EventsRecord) -> bool | None:
        """Return what the changes that follow from a record say; None: it is not decided."""
        self.apply(said)
        cut = self.moved(NOW + len(self.log))
        assert {row.role for row in rows_of(cut, SourceRow)} <= {said.role}
        self.entries = sources_of(cut)
        last = self.entries[-1]
        assert last.changes
        assert not (last.undecided and last.receives)
        return None if last.undecided else last.receives


@pytest.mark.parametrize(("role", "receives"), [("prefill", False), ("decode", True), ("both", True)])
def test_a_role_tells_until_the_engine_has_counted(role: str, receives: bool) -> None:
    agent = Agent()
    assert agent.told(record(0, role=role)) == receives
    for seq, counted in enumerate((IDLE, FEW), 1):
        assert agent.told(record(seq, counted, role=role)) is receives, "it has computed little so far"
    assert agent.told(record(3, NONE, role=role)) is False, "so labelled, but nothing comes to it"
    assert agent.told(record(4, COUNTED, role=role)) == (role != "prefill")
    assert agent.told(record(5, NONE, role=role)) == (role != "prefill")


def test_what_was_counted_once_counts_until_the_session_ends() -> None:
    agent = Agent()
    assert [
        agent.told(said)
        for said in (
            record(0, EngineCounters()),
            record(1, NONE),
            record(2, COUNTED),
            record(3),
            record(4, EngineCounters()),
            record(0, life=2),
            record(1, COUNTED, life=2),
        )
    ] == [False, False, True, True, True, None, True]


@pytest.mark.parametrize(("counted", "receives"), [(COUNTED, True), (FEW, False), (NONE, False)])
def test_what_came_before_is_what_the_engine_counts_next(counted: EngineCounters, receives: bool) -> None:
    agent = Agent()
    assert [agent.told(said) for said in (record(0, IDLE), record(1))] == [None, None]
    after = agent.told(record(2, counted))
    decided = agent.entries[0]
    assert after is (None if counted is FEW else receives)
    assert (decided.changes, decided.undecided, decided.receives) == ([], False, receives)


def test_what_is_not_decided_when_a_session_ends_was_not_received() -> None:
    agent = Agent()
    assert agent.told(record(0, IDLE)) is None
    agent.told(record(0, life=2))
    told = [(source.incarnation, source.undecided, source.receives) for source in agent.entries]
    assert told == [(1, True, False), (1, False, False), (2, True, False)]
    assert agent.told(record(1, role="decode", life=2)) is True
    assert [(each.undecided, each.receives) for each in agent.entries] == [(False, True), (False, True)]


def test_a_page_behind_changes_of_the_same_checkpoint_decides_on_them() -> None:
    agent = ReplicaAgent(shards=2)
    agent.apply(record(0, IDLE), record(1), record(2, COUNTED), record(3))
    by_shard: dict[int, list[tuple[bool, bool]]] = {}
    for told in residency_of(agent.cut(NOW)):
        by_shard.setdefault(told.shard, []).extend((one.undecided, one.receives) for one in told.sources)
    assert by_shard == {0: [(True, False), (False, True), (False, True)], 1: [(False, True)]}


def test_a_role_may_be_told_later_and_taken_back() -> None:
    agent = Agent()
    assert [
        agent.told(record(seq, role=role)) for seq, role in enumerate(("", "decode", "prefill", "both", ""))
    ] == [False, True, False, True, False]


def test_the_changes_of_a_session_that_ends_say_what_it_was() -> None:
    agent = ReplicaAgent()
    agent.apply(record(0, role="decode"), record(0, role="prefill", life=2))
    sources = sources_of(agent.cut(NOW))
    assert [(source.incarnation, source.receives) for source in sources] == [(1, True), (2, False)]


def test_records_of_another_role_do_not_join_a_run() -> None:
    said = [record(1), record(2), record(3, role="decode"), record(4, role="decode")]
    encoded = [msgspec.msgpack.encode(one) for one in said]
    runs = read(encoded, Worker(), offsets=range(4)).runs
    assert sorted((run.first_seq, run.last_seq, run.record.role) for run in runs) == [
        (1, 2, ""),
        (3, 4, "decode"),
    ]
