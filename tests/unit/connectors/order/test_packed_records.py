"""Bundles leave as the records that the same messages give one by one."""

from __future__ import annotations

import random

import msgspec
import pytest

from connectors.frames.bundle import Bundle
from connectors.order.gathered import Gathered
from connectors.order.log import NOBODY, SourceLog
from connectors.order.records import PackedRecord, came_at, mention_of
from connectors.order.runs import MAX_RUN_BYTES
from connectors.order.stream import SourceStream
from connectors.order.together import scanned_together
from connectors.publish.producer import MAX_REQUEST_BYTES
from connectors.sources import Source
from schemas.events import Accessed, Batch, Cleared, Closed, Event, EventsRecord, Removed, Stored
from schemas.json_form import to_json
from schemas.settings import Connector
from tests.support.inputs.captures import NAMES, captured_frames
from tests.support.inputs.troubled_frames import troubled

SOURCE = Source("r", 0, "m", "t", "m/s/t", "tcp://127.0.0.1:1")
NOW = 1_800_000_000.0

encode = msgspec.msgpack.encode


def stream(record_bytes: int = 32 << 10) -> SourceStream:
    settings = Connector(record_bytes=record_bytes, linger_seconds=60)
    return SourceStream(SOURCE, settings, clock=lambda: NOW)


def decoded(records: list[EventsRecord]) -> list[EventsRecord]:
    return [msgspec.msgpack.decode(encode(record), type=EventsRecord) for record in records]


def batches(records: list[EventsRecord]) -> list[Batch]:
    return [batch for record in decoded(records) for batch in record.batches]


@pytest.mark.parametrize("name", NAMES)
def test_the_same_batches_whatever_happens(name: str) -> None:
    rng = random.Random(name)
    frames = captured_frames(name)
    messages = troubled(frames[:400], rng) + troubled(frames[:50], rng)
    one_by_one, bundled = stream(), stream()
    expected: list[EventsRecord] = []
    records: list[EventsRecord] = []
    while messages:
        count = rng.choice((1, 2, 5, 100))
        part, messages = messages[:count], messages[count:]
        expected += one_by_one.feed_all(part, NOW)
        records += bundled.feed_all(Bundle.of(part), NOW)
    expected += one_by_one.flush()
    records += bundled.flush()
    assert batches(records) == batches(expected)
    assert bundled.counts == one_by_one.counts
    assert bundled.position is not None
    assert one_by_one.position is not None
    assert (bundled.position.last, bundled.position.fingerprint) == (
        one_by_one.position.last,
        one_by_one.position.fingerprint,
    )
    assert any(isinstance(record, PackedRecord) for record in records)
    for record, read in zip(records, decoded(records), strict=True):
        numbers = [batch.seq for batch in read.batches if batch.seq is not None]
        assert (read.first_seq, read.last_seq) == ((numbers[0], numbers[-1]) if numbers else (None, None))
        assert mention_of(record) == mention_of(read)
        assert came_at(record) == read.batches[0].received_at
        ends = [type(batch.events[-1]) is Closed for batch in read.batches if batch.events]
        assert not isinstance(record, PackedRecord) or not any(ends)


def test_streams_scanned_together_give_what_each_gives_alone() -> None:
    rng = random.Random(3)
    frames = {name: troubled(captured_frames(name)[:400], rng) for name in NAMES}
    settings = Connector(linger_seconds=60)
    alone, together = ({name: stream() for name in NAMES} for _ in range(2))
    expected: dict[str, list[EventsRecord]] = {name: [] for name in NAMES}
    records: dict[str, list[EventsRecord]] = {name: [] for name in NAMES}
    while any(frames.values()):
        names = rng.sample(NAMES, rng.randrange(1, len(NAMES) + 1))
        bundles = []
        for name in names:
            count = rng.choice((0, 1, 2, 30))
            bundles.append(Bundle.of(frames[name][:count]))
            frames[name] = frames[name][count:]
        streams = [together[name] for name in names]
        at = NOW + rng.random()
        scanned, slots = scanned_together(
            [*streams, None], [*bundles, bundles[0]], [at] * (len(names) + 1), Gathered(), settings
        )
        assert scanned.pop() is None
        assert not slots
        for name, bundle, result in zip(names, bundles, scanned, strict=True):
            records[name] += together[name].feed_all(bundle, at, result)
            expected[name] += alone[name].feed_all(bundle, at)
    for name in NAMES:
        records[name] += together[name].flush()
        expected[name] += alone[name].flush()
        assert decoded(records[name]) == decoded(expected[name])
        assert together[name].counts == alone[name].counts


def payload(seq: int, hashes: int = 1) -> bytes:
    return encode([NOW + seq, [["BlockStored", [2**63 + seq] * hashes, None, [1] * 8, 8, None, "GPU"]], 0])


def bundle(first: int, end: int, hashes: int = 1) -> Bundle:
    return Bundle.of((b"t", seq.to_bytes(8, "big"), payload(seq, hashes)) for seq in range(first, end))


@pytest.mark.parametrize("hashes", [1, 100, 8_000])
def test_records_close_at_their_size(hashes: int) -> None:
    source = stream(record_bytes=20_000)
    records = source.feed_all(bundle(0, 1, hashes), NOW)
    for first in range(1, 301, 100):
        records += source.feed_all(bundle(first, first + 100, hashes), NOW)
    records += source.flush()
    assert [batch.seq for batch in batches(records) if batch.seq is not None] == list(range(301))
    one = len(encode(batches(records)[-1]))
    sizes = [len(encode(record)) for record in records]
    assert all(20_000 <= size < 20_000 + one + 500 for size in sizes[:-1])


def test_a_record_does_not_outgrow_the_topics_limit() -> None:
    source = stream(record_bytes=4 << 20)
    records = source.feed_all(bundle(0, 300, 8_000), NOW) + source.flush()
    assert len(batches(records)) == 301
    assert max(len(encode(record)) for record in records) < MAX_RUN_BYTES + 1_000


@pytest.mark.parametrize(
    "event",
    [
        Stored(bytes(16_000), 16, 32_000),
        Stored(bytes(16_000), 16, 32_000, links=bytes(16_000)),
        Removed(bytes(16_000)),
        Accessed(bytes(16_000)),
    ],
)
def test_nor_does_it_as_json_whatever_it_holds(event: Event) -> None:
    log = SourceLog(SOURCE, Connector(record_bytes=4 << 20), NOBODY, None, NOW)
    for seq in range(400):
        batch = Batch(seq, NOW, NOW, [event])
        log.take_decoded(batch, seq, 100_000, 0, NOW, missing="replay_holes")
    records = log.take_closed()
    assert records
    assert max(len(to_json(record)) for record in records) < MAX_REQUEST_BYTES


def test_a_life_ends_in_a_record_that_is_not_packed() -> None:
    source = stream()
    source.feed_all(bundle(0, 5), NOW)
    cleared = encode([NOW + 99, [["AllBlocksCleared"]], 0])
    first, second = source.feed_all(Bundle.of([(b"t", bytes(8), cleared)]), NOW)
    assert isinstance(first, PackedRecord)
    assert second.batches == [Batch(None, NOW, NOW, [Closed("restarted")])]
    assert (mention_of(first).closed, mention_of(second).closed) == (False, True)
    (last,) = source.flush()
    assert last.batches[-1].events == [Cleared()]
