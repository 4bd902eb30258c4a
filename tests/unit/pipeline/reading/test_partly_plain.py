"""Records that are plain for the most part are read in parts, or not at all."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from pipeline.reading import partly_plain
from pipeline.reading.partly_plain import PartlyPlain
from pipeline.reading.plain_runs import PlainRun
from pipeline.reading.records import Reading, read
from schemas.events import Batch, Cleared, Event, EventsRecord, Opened, Removed, Stored
from schemas.settings import Worker
from tests.support.in_parts import read_in_parts

AT = 1_800_000_000.0
STORE, REMOVAL = Stored(bytes(8), 16, 16), Removed(bytes(8))
CLEAR = Cleared()


def batch(seq: int | None, event: Event, **other: Any) -> Batch:
    return msgspec.structs.replace(Batch(seq, AT, AT + 0.25, [event], 1), **other)


def record(batches: list[Batch], **said: Any) -> EventsRecord:
    return EventsRecord("r", "m", "d", 0, 1, batches, batches[0].seq, batches[-1].seq, **said)


def of(*events: Event) -> list[Batch]:
    return [batch(seq, event) for seq, event in enumerate(events, 7)]


def read_one(value: EventsRecord | bytes, written: float = 0.0) -> Reading:
    encoded = value if isinstance(value, bytes) else msgspec.msgpack.encode(value)
    reading = read([encoded], Worker(), offsets=[5], written=[written])
    assert not reading.runs
    return reading


def in_parts(value: EventsRecord, written: float = 0.0) -> PartlyPlain:
    reading = read_one(value, written)
    ((place, found),) = reading.partly
    assert (place, reading.others) == (0, [])
    return found


def decoded(found: PartlyPlain) -> list[EventsRecord]:
    return [part.decoded() if isinstance(part, PlainRun) else part for part in found.parts]


@pytest.fixture(autouse=True)
def short_records_too(monkeypatch: pytest.MonkeyPatch) -> None:
    read_in_parts(monkeypatch)


def test_runs_and_what_is_between_come_in_order() -> None:
    batches = of(STORE, REMOVAL, CLEAR, CLEAR, STORE, STORE, CLEAR)
    found = in_parts(record(batches, duplicates=3, remarks=["other_rank:1"]))
    assert [type(part) for part in found.parts] == [PlainRun, EventsRecord] * 2
    assert [one.batches for one in decoded(found)] == [batches[:2], batches[2:4], batches[4:6], batches[6:]]
    runs = [part for part in found.parts if isinstance(part, PlainRun)]
    assert [(run.first_seq, run.last_seq, run.batches, *run.offsets) for run in runs] == [
        (7, 8, 2, 5),
        (11, 12, 2, 5),
    ]
    assert found.received_at == AT + 0.25
    # All parts say what the record says; what is counted is counted once.
    assert [one.duplicates for one in decoded(found)] == [3, 0, 0, 0]
    assert {tuple(one.remarks) for one in decoded(found)} == {("other_rank:1",)}
    assert {(one.first_seq, one.last_seq) for one in decoded(found)} == {(7, 13)}


def test_what_begins_with_something_else_is_read_too() -> None:
    found = in_parts(record(of(CLEAR, STORE, STORE), duplicates=1))
    assert [one.duplicates for one in decoded(found)] == [1, 0]
    assert [type(part) for part in found.parts] == [EventsRecord, PlainRun]


def test_runs_end_where_their_window_does() -> None:
    batches = of(STORE, CLEAR, STORE, STORE)
    batches[3] = batch(10, STORE, ts=AT + 10.0, received_at=AT + 10.0)
    found = in_parts(record(batches))
    assert [len(one.batches) for one in decoded(found)] == [1, 1, 1, 1]
    assert found.received_at == AT + 10.0


def test_receipts_are_bounded_by_the_time_of_the_log() -> None:
    batches = of(STORE, STORE, CLEAR, STORE, STORE)
    batches[0] = batch(7, STORE, ts=AT + 4999.0, received_at=AT + 5000.0)
    batches[2] = batch(9, CLEAR, received_at=AT + 5000.0)
    found = decoded(in_parts(record(batches), written=AT + 1))
    assert [one.batches[0].received_at - AT for one in found] == [1, 0.25, 1, 0.25]
    # Nothing else can be encoded in a checkpoint.
    assert {type(one.batches[0].received_at) for one in found} == {float}


@pytest.mark.parametrize(
    "batches",
    [
        [batch(None, Opened(7, complete=False)), *of(STORE, STORE)],
        [*of(STORE, STORE), batch(None, Opened(9, complete=False))],
        [batch(7, STORE), batch(9, CLEAR), batch(10, STORE)],
        [batch(7, STORE), batch(8, CLEAR), batch(8, STORE)],
        of(STORE, CLEAR),
        of(CLEAR),
        [],
    ],
    ids=["notice first", "notice last", "gap", "twice", "half of it else", "nothing plain", "empty"],
)
def test_others_are_decoded_as_a_whole(batches: list[Batch]) -> None:
    value = EventsRecord("r", "m", "d", 0, 1, batches)
    reading = read_one(value)
    assert (reading.partly, reading.others) == ([], [0])


def test_what_does_not_decode_is_left_whole() -> None:
    fine = msgspec.msgpack.encode(record(of(STORE, CLEAR, STORE)))
    assert read_one(fine).partly
    for bad in (fine.replace(b"cleared", b"clouded"), fine.replace(b"\x08\xcb", b"\xa1\xcb"), fine[:-1]):
        assert bad != fine
        reading = read_one(bad)
        assert (reading.partly, reading.others) == ([], [0])


def test_short_records_are_not_worth_it(monkeypatch: pytest.MonkeyPatch) -> None:
    value = record(of(STORE, CLEAR, STORE))
    size = len(msgspec.msgpack.encode(value.batches))
    monkeypatch.setattr(partly_plain, "WORTH_BYTES", size)
    assert read_one(value).partly
    monkeypatch.setattr(partly_plain, "WORTH_BYTES", size + 1)
    assert not read_one(value).partly


def test_runs_that_are_short_are_not_worth_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(partly_plain, "LEAST_BATCHES_A_RUN", 16)
    assert read_one(record(of(*[STORE] * 20, CLEAR, *[STORE] * 11))).partly
    assert not read_one(record(of(*[STORE] * 20, CLEAR, *[STORE] * 10))).partly
    assert not read_one(record(of(*[STORE, STORE, CLEAR] * 40))).partly


def test_lists_that_are_longer_than_their_bytes_are_not_taken_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    taken = []
    decode = partly_plain._decode_raw
    monkeypatch.setattr(partly_plain, "_decode_raw", lambda raw: taken.append(raw) or decode(raw))
    head = msgspec.msgpack.encode(record(of(STORE)))
    batches = msgspec.msgpack.encode(of(STORE))
    for count in (5, 5_000, 70_000):
        read_one(head.replace(batches, msgspec.msgpack.encode([None] * count)))
    assert not taken
    read_one(record(of(*[STORE] * 5_000, CLEAR)))
    assert len(taken) == 1
