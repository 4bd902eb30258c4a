from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from connectors.normalise.normaliser import Normaliser
from connectors.normalise.wire import MAX_BATCH_BYTES
from connectors.order.asks import Ask
from connectors.order.log import Hearers
from connectors.order.stream import SourceStream
from connectors.sources import Source
from schemas.events import (
    Batch,
    Closed,
    EngineCounters,
    Event,
    EventsRecord,
    Gap,
    Opened,
    Stored,
    Undecodable,
)
from schemas.settings import Connector
from tests.support.inputs.captures import captured_frames

SOURCE = Source("r", 0, "m", "t", "m/s/t", "tcp://127.0.0.1:1")
NOW = 1_800_000_000.0


def _stream(
    record_bytes: int = 1 << 20, linger_seconds: float = 1.0, source: Source = SOURCE
) -> SourceStream:
    settings = Connector(record_bytes=record_bytes, linger_seconds=linger_seconds)
    return SourceStream(source, settings, clock=lambda: NOW + 9)


def _payload(seq: int, life: int = 0) -> bytes:
    stored = ["BlockStored", [life * 1000 + seq], None, [1, 2], 2, None, "GPU", None]
    return msgspec.msgpack.encode([1_700_000_000.0 + life * 1e6 + seq, [stored], 0])


def _message(seq: int, life: int = 0) -> tuple[bytes, bytes, bytes]:
    return (b"topic", seq.to_bytes(8, "big"), _payload(seq, life))


def _events(records: Sequence[EventsRecord]) -> list[tuple[int | None, Event]]:
    return [(batch.seq, event) for record in records for batch in record.batches for event in batch.events]


def _notices(records: Sequence[EventsRecord]) -> list[Event]:
    return [event for seq, event in _events(records) if seq is None]


def _seqs(records: Sequence[EventsRecord]) -> list[int]:
    return [batch.seq for record in records for batch in record.batches if batch.seq is not None]


def test_first_contact_opens_an_incarnation_and_says_whether_it_is_complete() -> None:
    for first, complete in ((0, True), (41, False)):
        stream = _stream()
        records = stream.feed(_message(first), NOW) + stream.flush()
        assert _events(records)[0] == (None, Opened(first, complete, SOURCE.endpoint))
        assert _seqs(records) == [first]
        assert records[0].incarnation == int(NOW * 1e6)
        assert (records[0].first_seq, records[0].last_seq) == (first, first)


@pytest.mark.parametrize("name", ["vllm-0.33.0-map", "sglang-0.5.15-array", "vllm-0.23.0-array-offload-cpu"])
def test_records_of_a_capture_hold_what_the_normaliser_makes_of_it(name: str) -> None:
    frames = captured_frames(name)
    stream = _stream(record_bytes=32 << 10)
    records: list[EventsRecord] = []
    at = 0
    while at < len(frames):
        step = 1 + at % 7
        records += stream.feed_all(frames[at : at + step], NOW + at)
        at += step
    records += stream.flush()
    oracle = Normaliser(max_frame_bytes=1 << 24)
    batches = [batch for record in records for batch in record.batches if batch.seq is not None]
    assert [(b.seq, b.ts, b.events, b.engine_events) for b in batches] == [
        (b.seq, b.ts, b.events, b.engine_events)
        for b in (
            oracle.normalise(payload, seq=int.from_bytes(seq, "big"), received_at=0.0)
            for _, seq, payload in frames
        )
    ]
    assert _notices(records) == [Opened(0, True, SOURCE.endpoint)]
    assert {record.incarnation for record in records} == {int(NOW * 1e6)}
    assert (records[-1].engine, records[-1].wire_era) == (oracle.era.engine, oracle.era.wire_era)
    assert records[-1].may_reannounce is (name == "vllm-0.33.0-map")
    sizes = [len(msgspec.msgpack.encode(record)) for record in records]
    assert len(sizes) > 3
    assert max(sizes) < (32 << 10) + max(len(msgspec.msgpack.encode(batch)) for batch in batches) + 1000
    assert min(sizes[:-1]) > (32 << 10) // 2, "the estimate is not far above the packed size"


def test_gap_stands_in_its_place() -> None:
    stream = _stream()
    records = stream.feed_all([_message(0), _message(1), _message(5), _message(6)], NOW) + stream.flush()
    assert [(seq, type(event)) for seq, event in _events(records)] == [
        (None, Opened),
        (0, Stored),
        (1, Stored),
        (None, Gap),
        (5, Stored),
        (6, Stored),
    ]
    assert _notices(records)[1] == Gap(2, 4, "replay_not_configured")
    assert (stream.counts.gaps_by_reason.total(), stream.counts.lost_batches) == (1, 3)
    assert stream.counts.gaps_by_reason == {"replay_not_configured": 1}
    assert stream.counts.batches == 4
    assert len({record.incarnation for record in records}) == 1


def test_duplicates_are_dropped_and_told() -> None:
    stream = _stream()
    records = stream.feed_all([_message(0), _message(1), _message(1), _message(0), _message(2)], NOW)
    records += stream.flush()
    assert _seqs(records) == [0, 1, 2]
    assert sum(record.duplicates for record in records) == 2
    assert stream.counts.duplicates == 2


def test_restart_closes_the_old_life_and_opens_a_greater_one() -> None:
    stream = _stream()
    records = stream.feed_all([_message(0), _message(1), _message(0, life=1), _message(1, life=1)], NOW)
    records += stream.flush()
    old, new = records
    assert (old.first_seq, old.last_seq, new.first_seq, new.last_seq) == (0, 1, 0, 1)
    assert new.incarnation > old.incarnation
    assert old.batches[-1].events == [Closed("restarted")]
    assert new.batches[0].events == [Opened(0, True, SOURCE.endpoint)]
    assert stream.counts.restarts == 1


def test_incarnations_grow_even_when_the_clock_is_set_back() -> None:
    stream = _stream()
    first = stream.feed(_message(0), NOW) + stream.feed(_message(0, life=1), NOW - 3600)
    last = stream.feed(_message(0, life=2), NOW - 7200) + stream.flush()
    incarnations = [record.incarnation for record in first + last]
    assert len(incarnations) == 3
    assert incarnations == sorted(set(incarnations))


_BAD_FRAMES = {
    "one frame": ([b"\xff\x01"], "frame_count", None),
    "two frames": ([b"topic", (2).to_bytes(8, "big")], "frame_count", None),
    "four frames": ([b"t", (2).to_bytes(8, "big"), b"\x90", b""], "frame_count", None),
    "sequence of seven bytes": ([b"t", b"\0" * 7, b"\x90"], "bad_seq", None),
    "sequence of nine bytes": ([b"t", b"\0" * 9, b"\x90"], "bad_seq", None),
    "sequence no engine counts to": ([b"t", b"\xf3" * 8, b"\x90"], "bad_seq", None),
    "random bytes far ahead": ([b"t", (700).to_bytes(8, "big"), b"\xc1\xff\x00"], "not_msgpack", 700),
    "random bytes behind": ([b"t", (0).to_bytes(8, "big"), b"\xc1\xff\x00"], "not_msgpack", 0),
    "50 MB ahead": ([b"t", (9).to_bytes(8, "big"), bytes(50 << 20)], "frame_too_large", 9),
}


@pytest.mark.parametrize("name", _BAD_FRAMES)
def test_bad_frame_between_good_ones_costs_only_itself(name: str) -> None:
    frames, reason, seq = _BAD_FRAMES[name]
    stream = _stream()
    records = stream.feed_all([_message(0), _message(1), frames, _message(2)], NOW) + stream.flush()
    assert _seqs(records) == [0, 1, 2]
    assert _events(records)[3] == (None, Undecodable(reason, seq))
    assert _notices(records) == [Opened(0, True, SOURCE.endpoint), Undecodable(reason, seq)]
    assert stream.counts.undecodable == {reason: 1}
    assert len({record.incarnation for record in records}) == 1


@pytest.mark.parametrize(
    "payload", [b"", b"\xc1", b"\x91", random.Random(3).randbytes(500), b"\x90", b"\xc0"]
)
@pytest.mark.parametrize("comes_again", [False, True])
def test_bad_payload_whose_turn_it_is_makes_no_gap(payload: bytes, comes_again: bool) -> None:
    stream = _stream()
    bad = (b"t", (1).to_bytes(8, "big"), payload)
    good = [_message(1), _message(2)] if comes_again else [_message(2)]
    records = stream.feed_all([_message(0), bad, *good], NOW) + stream.flush()
    assert _seqs(records) == ([0, 1, 2] if comes_again else [0, 2])
    _, (place, event) = [(seq, e) for seq, e in _events(records) if not isinstance(e, Stored)]
    assert isinstance(event, Undecodable)
    assert (place, event.seq, event.count) == (None, 1, 1)
    assert sum(stream.counts.undecodable.values()) == 1
    assert (stream.counts.gaps_by_reason.total(), stream.counts.restarts, stream.counts.duplicates) == (
        0,
        0,
        0,
    )


def test_bad_frames_before_first_contact_are_told_in_the_incarnation_that_follows() -> None:
    stream = _stream()
    records = stream.feed_all([[b"x"], (b"t", bytes(8), b"\xc1"), _message(5)], NOW) + stream.flush()
    assert _notices(records) == [
        Undecodable("frame_count"),
        Undecodable("not_msgpack", 0),
        Opened(5, False, SOURCE.endpoint),
    ]
    assert len(records) == 1


@given(st.lists(st.lists(st.binary(max_size=40), max_size=5), max_size=30))
def test_no_frames_whatever_raise_or_get_lost(messages: list[list[bytes]]) -> None:
    stream = _stream()
    records = stream.feed_all(messages, NOW) + stream.flush()
    told = (
        stream.counts.batches
        + stream.counts.duplicates
        + len([event for event in _notices(records) if isinstance(event, Undecodable)])
    )
    assert told == len(messages)


@pytest.mark.parametrize("together", [True, False])
def test_bad_payload_behind_good_ones_does_not_make_the_next_batch_look_late(together: bool) -> None:
    stream = _stream(source=replace(SOURCE, replay_endpoint="tcp://127.0.0.1:2"))
    bad = (b"topic", (2).to_bytes(8, "big"), b"\xc1")
    messages = [_message(0), _message(1), bad]
    if together:
        stream.feed_all(messages, NOW)
    else:
        for message in messages:
            stream.feed(message, NOW)
    stream.feed(_message(5), NOW)
    assert not stream.counts.left_out
    assert stream.ask == Ask(1, urgent=True)
    assert not stream.settled


def test_batch_that_would_not_fit_a_record_is_replaced() -> None:
    stream = _stream(record_bytes=1024)
    hashes = [7] * (MAX_BATCH_BYTES // 8)
    huge = msgspec.msgpack.encode([1.5, [["BlockRemoved", hashes, "GPU"]], 0])
    assert len(huge) < 1 << 20
    records = stream.feed_all([_message(0), (b"", (1).to_bytes(8, "big"), huge), _message(2)], NOW)
    records += stream.flush()
    assert _seqs(records) == [0, 1, 2]
    assert (1, Undecodable("frame_too_large", 1)) in _events(records)
    assert stream.counts.undecodable == {"frame_too_large": 1}


def test_large_batch_goes_out_as_one_record() -> None:
    stream = _stream(record_bytes=1024)
    hashes = [2**63 + n for n in range(300_000)]
    large = msgspec.msgpack.encode([1.5, [["BlockStored", hashes, None, [], 16, None, "GPU"]], 0])
    records = stream.feed_all([_message(0), (b"", (1).to_bytes(8, "big"), large), _message(2)], NOW)
    records += stream.flush()
    assert _seqs(records) == [0, 1, 2]
    assert stream.counts.undecodable == {}
    assert max(len(msgspec.msgpack.encode(record)) for record in records) > 8 * 300_000


def test_notices_keep_their_place_among_the_batches() -> None:
    stream = _stream()
    counters = EngineCounters(prefix_cache_queries=5)
    records = stream.note(counters, NOW) + stream.feed(_message(0), NOW)
    records += stream.note(counters, NOW + 1) + stream.feed(_message(1), NOW) + stream.flush()
    assert [(seq, type(event)) for seq, event in _events(records)] == [
        (None, EngineCounters),
        (None, Opened),
        (0, Stored),
        (None, EngineCounters),
        (1, Stored),
    ]
    assert {record.incarnation for record in records} == {int(NOW * 1e6)}


def test_close_ends_the_incarnation_in_its_last_record() -> None:
    stream = _stream()
    assert stream.close("removed") == []
    stream.feed(_message(0), NOW)
    (record,) = stream.close("removed")
    assert record.batches[-1] == Batch(None, NOW + 9, NOW + 9, [Closed("removed")])
    assert record.last_seq == 0


def test_runs_leave_when_they_are_due() -> None:
    stream = _stream(linger_seconds=0.1)
    assert stream.feed(_message(0), NOW) == []
    assert stream.due(NOW + 0.0999) == []
    assert _seqs(stream.due(NOW + 0.1)) == [0]


def test_observer_is_told_what_happens() -> None:
    told: list[Event] = []
    stream = SourceStream(
        SOURCE, Connector(), lambda: NOW, hearers=Hearers(lambda source, event: told.append(event))
    )
    unknown = msgspec.msgpack.encode([1.0, [["Novelty", 1]], 0])
    stream.feed_all([_message(0), _message(2), (b"", (3).to_bytes(8, "big"), unknown), [b""]], NOW)
    assert told == [
        Opened(0, True, SOURCE.endpoint),
        Gap(1, 1, "replay_not_configured"),
        Undecodable("unknown_type", 3, event_type="Novelty"),
        Undecodable("frame_count"),
    ]
