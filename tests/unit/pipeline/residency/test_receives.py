"""Which engines receive KV that others computed: by role, or by what they count, until their session ends."""

from __future__ import annotations

import msgspec
import pytest

from pipeline.reading.records import read
from pipeline.residency.partition import PartitionState
from schemas.events import Batch, EngineCounters, Event, EventsRecord, Opened, Stored
from schemas.residency import ResidencyRecord
from schemas.rows import SourceRow
from schemas.settings import Worker

NOW = 1_800_000_000.0
COUNTED = EngineCounters(transferred_tokens=16)
NONE = EngineCounters(transferred_tokens=0, computed_tokens=64)
IDLE = EngineCounters(transferred_tokens=0, computed_tokens=0)


def stored(number: int) -> Stored:
    return Stored(number.to_bytes(8, "big"), 16, 16)


def record(seq: int, *notices: Event, role: str = "", life: int = 1) -> EventsRecord:
    """Return a batch that stores a block, behind notices."""
    at = NOW + life * 1000 + seq
    before = [Batch(None, at, at, [Opened(0, complete=True)])] if not seq else []
    before += [Batch(None, at, at, [notice]) for notice in notices]
    batch = Batch(seq, at, at, [stored(life * 1000 + seq + 1)], 1)
    return EventsRecord("r", "m", "d", 0, life, [*before, batch], seq, seq, role=role)


class Agent:
    """Applies records, cuts a checkpoint after each, and goes on from it as after a crash."""

    def __init__(self) -> None:
        self.state = PartitionState(0, Worker(), shards=1)
        self.latest: dict[bytes, bytes] = {}
        self.offset = 0

    def told(self, said: EventsRecord) -> bool:
        """Return what the changes that follow from a record say."""
        self.state.apply(self.offset, said)
        self.offset += 1
        cut = self.state.cut(NOW + self.offset)
        for key, value in cut.checkpoints:
            if value is None:
                self.latest.pop(key, None)
            else:
                self.latest[key] = value
        self.state = PartitionState.restore(0, Worker(), shards=1, latest=self.latest)
        changes = [
            source
            for _, _, value in cut.residency
            for source in msgspec.msgpack.decode(value, type=ResidencyRecord).sources
        ]
        roles = {row.role for row in cut.rows if isinstance(row, SourceRow)}
        assert roles <= {said.role}
        (last,) = changes[-1:]
        return last.receives


@pytest.mark.parametrize(
    ("role", "receives"), [("", False), ("prefill", False), ("decode", True), ("both", True)]
)
def test_a_role_tells_until_the_engine_has_counted(role: str, receives: bool) -> None:
    agent = Agent()
    assert agent.told(record(0, role=role)) == receives
    assert agent.told(record(1, IDLE, role=role)) == receives, "it has computed nothing so far"
    assert not agent.told(record(2, NONE, role=role)), "so labelled, but nothing comes to it"
    assert agent.told(record(3, COUNTED, role=role)) == (role != "prefill")
    assert agent.told(record(4, NONE, role=role)) == (role != "prefill")


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
    ] == [False, False, True, True, True, False, True]


def test_a_role_may_be_told_later_and_taken_back() -> None:
    agent = Agent()
    assert [
        agent.told(record(seq, role=role)) for seq, role in enumerate(("", "decode", "prefill", "both", ""))
    ] == [False, True, False, True, False]


def test_the_changes_of_a_session_that_ends_say_what_it_was() -> None:
    state = PartitionState(0, Worker(), shards=1)
    for offset, said in enumerate((record(0, role="decode"), record(0, role="prefill", life=2))):
        state.apply(offset, said)
    (value,) = [value for _, _, value in state.cut(NOW).residency]
    sources = msgspec.msgpack.decode(value, type=ResidencyRecord).sources
    assert [(source.incarnation, source.receives) for source in sources] == [(1, True), (2, False)]


def test_records_of_another_role_do_not_join_a_run() -> None:
    said = [record(1), record(2), record(3, role="decode"), record(4, role="decode")]
    encoded = [msgspec.msgpack.encode(one) for one in said]
    runs = read(encoded, Worker(), offsets=range(4)).runs
    assert sorted((run.first_seq, run.last_seq, run.record.role) for run in runs) == [
        (1, 2, ""),
        (3, 4, "decode"),
    ]
