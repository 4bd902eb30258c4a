"""The ends of the topics folded into what they say of each source."""

from __future__ import annotations

import msgspec

from pipeline.doctor.asking.log_reader import SETTLE_SECONDS, LogReader
from pipeline.doctor.facts import LogFacts, PositionFacts, SetAsideFacts
from schemas.checkpoints import TOPICS_KEY, StateTopics
from schemas.events import EventsRecord, SourceStatus
from schemas.positions import PositionRecord
from schemas.set_aside import SetAsideRecord
from tests.support.inputs import event_records
from tests.support.inputs.event_records import batch, notice

NOW = 1_800_000_000.0
JSON = [("content-type", b"application/json")]


def record(life: int, *seqs: int, replica: str = "a") -> EventsRecord:
    batches = [batch(seq, NOW) for seq in seqs] or [notice(NOW, SourceStatus(connected=True))]
    return event_records.record(*batches, replica=replica, life=life)


def packed(event: EventsRecord) -> bytes:
    return msgspec.msgpack.encode(event)


def test_newest_position_settled_position_and_time_of_each_source() -> None:
    reader = LogReader(NOW)
    reader.event(packed(record(1, 5, 6)), [], NOW - 60)
    reader.event(packed(record(1, 7)), [], NOW - 30)
    reader.event(msgspec.json.encode(record(1, 8, 9)), JSON, NOW - 10)
    reader.event(packed(record(1)), [], NOW - 3)
    reader.event(packed(record(4, 0, replica="b")), [], NOW - 40)
    assert reader.log == {
        ("a", 0): LogFacts(1, 9, NOW - 3, (1, 7)),
        ("b", 0): LogFacts(4, 0, NOW - 40, (4, 0)),
    }
    assert reader.newest_record_at == NOW - 3


def test_a_new_life_counts_and_what_an_old_one_says_late_does_not() -> None:
    reader = LogReader(NOW)
    reader.event(packed(record(1, 50)), [], NOW - 60)
    reader.event(packed(record(2)), [], NOW - 50)
    assert reader.log["a", 0] == LogFacts(2, None, NOW - 50, (1, 50))
    reader.event(packed(record(1, 51)), [], NOW - 40)
    reader.event(packed(record(2, 0)), [], NOW - 30)
    assert reader.log["a", 0] == LogFacts(2, 0, NOW - 30, (2, 0))


def test_repeated_records_do_not_set_a_position_back() -> None:
    reader = LogReader(NOW)
    for seqs in ((1, 2), (3,), (1, 2)):
        reader.event(packed(record(1, *seqs)), [], NOW - 60)
    assert reader.log["a", 0].last_seq == 3


def test_what_cannot_be_decoded_says_nothing_of_a_source() -> None:
    reader = LogReader(NOW)
    reader.event(b"\xc1", [], NOW - 1)
    reader.event(None, [], NOW - 1)
    reader.position(b"\xc1", NOW - 1)
    reader.checkpoint("t", 3, NOW - 1, TOPICS_KEY, b"\xc1")
    assert (reader.log, reader.positions, reader.newest_record_at) == ({}, {}, NOW - 1)


def test_the_newest_record_of_positions_and_checkpoints_counts() -> None:
    reader = LogReader(NOW)
    for seq, at in ((3, NOW - 60), (6, NOW - SETTLE_SECONDS), (9, NOW - 5)):
        reader.position(msgspec.msgpack.encode(PositionRecord("a", 1, 7, 5, incarnation=2, seq=seq)), at)
    assert reader.positions == {("a", 1): PositionFacts(2, 9, 7, NOW - 5, (2, 6))}
    for at in (5.0, 9.0, 7.0):
        reader.checkpoint("t", 3, at)
    assert reader.saved_at == {"t": {3: 9.0}}
    for ids in ({"e": "1", "r": "2"}, {"r": "3"}):
        reader.checkpoint("t", 3, 9.0, TOPICS_KEY, msgspec.msgpack.encode(StateTopics(ids)))
    reader.checkpoint("t", 3, 9.0, TOPICS_KEY, None)
    assert reader.saved_topics == {"e": "1", "r": "3"}


def test_records_set_aside_are_named_once_each() -> None:
    reader = LogReader(NOW)
    one = SetAsideRecord("kvlens.events.v1", 3, 812, "bad_time", "", NOW, 9, replica="a", dp_rank=0)
    other = SetAsideRecord("kvlens.events.v1", 3, 813, "malformed", "", NOW, 1)
    for record in (one, other, one):
        reader.set_aside_record(msgspec.msgpack.encode(record))
    reader.set_aside_record(b"\xc1")
    assert list(reader.set_aside.values()) == [
        SetAsideFacts("kvlens.events.v1[3] offset 812", "bad_time", "a/0"),
        SetAsideFacts("kvlens.events.v1[3] offset 813", "malformed", ""),
    ]
