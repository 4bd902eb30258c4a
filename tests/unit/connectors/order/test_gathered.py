"""Streams whose batches are gathered say what they say when each message comes to them alone."""

from __future__ import annotations

import random
from itertools import accumulate
from typing import Any, cast

import msgspec
import numpy as np
import pytest

from connectors.frames.bundle import Bundle, Bundles, Frames
from connectors.normalise import normaliser
from connectors.normalise.forwarding import Forwarding
from connectors.normalise.pseudonyms import Pseudonyms
from connectors.order import gathered as gathered_module
from connectors.order.gathered import FIRST_SLOTS, SLOT_BATCHES, SLOT_BYTES, Gathered, Slot
from connectors.order.gathering import gather, warm_up
from connectors.order.log import Hearers
from connectors.order.stream import SourceStream
from connectors.order.together import gathered_together, scanned_together
from connectors.sources import Source, SourceKey
from schemas.events import EventsRecord, SourceStatus, Stored
from schemas.settings import Connector
from tests.support.inputs.captures import NAMES, captured_frames
from tests.support.inputs.event_records import events_in
from tests.support.inputs.troubled_frames import troubled
from tests.support.suite.night import first_by_day

NOW = 1_800_000_000.0
LINGER_SECONDS = 0.1
SETTINGS = Connector(linger_seconds=LINGER_SECONDS, record_bytes=4_000)

encode = msgspec.msgpack.encode


def source(name: str) -> Source:
    return Source(name, 0, "m", "t", "m/s/t", "tcp://127.0.0.1:1")


def side_by_side(bundles: list[Bundle]) -> Bundles:
    begins = list(accumulate((bundle.size for bundle in bundles), initial=0))[:-1]
    return Bundles(
        np.concatenate([bundle.data for bundle in bundles]),
        np.concatenate([bundle.table for bundle in bundles], axis=1),
        np.array(list(accumulate(map(len, bundles))), np.int64),
        np.array(begins, np.int64),
    )


def decoded(records: list[EventsRecord]) -> list[EventsRecord]:
    return [msgspec.msgpack.decode(encode(record), type=EventsRecord) for record in records]


def lives(name: str, rng: random.Random) -> list[Frames]:
    """Return what may come of an engine, mostly in order, and then another life of it."""
    frames = captured_frames(name)
    return [
        message
        for count in (300, 150)
        for message in troubled(frames[:count], rng, gaps=0.005, unreadable=0.005, others=0.005)
    ]


class Both:
    """A stream that gets everything at once, and one that has a slot."""

    def __init__(self, name: str, gathered: Gathered) -> None:
        self.now = NOW
        self.key: SourceKey = (name, 0)
        self.slot = gathered.add(self.key)
        self.alone = SourceStream(source(name), SETTINGS, lambda: self.now)
        self.gathering = SourceStream(source(name), SETTINGS, lambda: self.now, slot=self.slot)
        self.expected: list[EventsRecord] = []
        self.records: list[EventsRecord] = []

    def disturb(self, rng: random.Random) -> None:
        """Let something happen that is no message."""
        match rng.randrange(12):
            case 0:
                self.expected += self.alone.note(SourceStatus(True), self.now)
                self.records += self.gathering.note(SourceStatus(True), self.now)
            case 1:
                self.expected += self.alone.look(self.now, connected=True)
                self.records += self.gathering.look(self.now, connected=True)
            case 2:
                self.expected += self.alone.flush()
                self.records += self.gathering.flush()
            case 3:
                assert self.gathering.due_at == self.alone.due_at
            case 4:
                assert state_of(self.gathering) == state_of(self.alone)
            case 5:
                self.expected += self.alone.close("removed")
                self.records += self.gathering.close("removed")

    def due(self) -> None:
        self.expected += self.alone.due(self.now)
        self.records += self.gathering.due(self.now)


def state_of(stream: SourceStream) -> tuple[object, ...]:
    position = stream.position
    return (
        stream.incarnation,
        stream.scans,
        None if position is None else (position.last, position.fingerprint, position.due),
        {name: getattr(stream.counts, name) for name in stream.counts.__slots__ if name != "seconds"},
    )


@pytest.mark.parametrize("seed", first_by_day(range(6), 2))
def test_the_same_records_whatever_happens(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(normaliser, "LOOK_EVERY", 40)
    rng = random.Random(seed)
    gathered = Gathered()
    both = {name: Both(name, gathered) for name in NAMES}
    frames = {name: lives(name, rng) for name in NAMES}
    now = NOW
    came = were_gathered = 0
    while any(frames.values()):
        now += rng.random() * LINGER_SECONDS / 2
        parts: list[tuple[Both, Bundle]] = []
        in_turn = rng.random() < 0.3
        for name in rng.sample(NAMES, rng.randrange(1, len(NAMES) + 1)):
            each = both[name]
            each.now = now
            if rng.random() < 0.02:
                each.disturb(rng)
            bundle = Bundle.of(frames[name][: rng.choice((1, 1, 1, 2, 3, 8))])
            frames[name] = frames[name][len(bundle) :]
            each.expected += each.alone.feed_all(bundle, now)
            if in_turn:
                parts.append((each, bundle))
            elif bundle.malformed:
                each.records += each.gathering.feed_all(bundle, now)
            elif bundle:
                parts.append((each, bundle))
        if parts and in_turn:
            dealt = scanned_together(
                [each.gathering for each, _ in parts],
                [bundle for _, bundle in parts],
                [now] * len(parts),
                gathered,
                SETTINGS,
            )
            for number, (each, bundle) in enumerate(parts):
                if number in dealt.slots:
                    assert dealt.slots[number] == gathered.numbers[each.key]
                    assert dealt.scanned[number] is None
                    gathered.charge(dealt.slots[number], 1e-9)
                else:
                    each.records += each.gathering.feed_all(bundle, now, dealt.scanned[number])
            came += len(parts)
            were_gathered += len(dealt.slots)
        elif parts:
            waits = rng.random() < 0.05
            others, slots, sizes = gathered_together(
                [None if waits else each.key for each, _ in parts],
                side_by_side([bundle for _, bundle in parts]),
                now,
                gathered,
                SETTINGS,
            )
            left = {number for number, _ in others}
            taken = [part for number, part in enumerate(parts) if number not in left]
            assert slots.tolist() == [gathered.numbers[each.key] for each, _ in taken]
            assert sizes.tolist() == [bundle.size for _, bundle in taken]
            gathered.charge(slots, sizes * 1e-9)
            assert len(others) == len(parts) or not waits
            for number, scanned in others:
                each, bundle = parts[number]
                each.records += each.gathering.feed_all(bundle, now, scanned)
            came += len(parts)
            were_gathered += len(parts) - len(others)
        now += rng.random() * LINGER_SECONDS / 2
        late = {name for name, _ in gathered.due(now, LINGER_SECONDS)}
        for name, each in both.items():
            each.now = now
            if name in late or rng.random() < 0.5:
                each.due()
        assert gathered.due(now, LINGER_SECONDS) == []
    assert were_gathered > came / 3
    for each in both.values():
        each.expected += each.alone.flush()
        each.records += each.gathering.flush()
        assert decoded(each.records) == decoded(each.expected)
        assert state_of(each.gathering) == state_of(each.alone)
        assert each.gathering.counts.seconds > each.alone.counts.seconds == 0


def payload(seq: int, hashes: int = 1) -> bytes:
    return encode([NOW + seq, [["BlockStored", [2**63 + seq] * hashes, None, [1] * 8, 8, None, "GPU"]], 0])


def bundle_of(first: int, end: int, hashes: int = 1) -> Bundle:
    return Bundle.of((b"t", seq.to_bytes(8, "big"), payload(seq, hashes)) for seq in range(first, end))


class One:
    """A stream with a slot that has got over its first looks."""

    def __init__(self, gathered: Gathered, name: str = "r", linger_seconds: float = LINGER_SECONDS) -> None:
        self.gathered = gathered
        self.key: SourceKey = (name, 0)
        self.slot: Slot = gathered.add(self.key)
        settings = Connector(linger_seconds=linger_seconds)
        self.stream = SourceStream(source(name), settings, lambda: NOW, slot=self.slot)
        self.stream.feed_all(bundle_of(0, 40), NOW)
        self.stream.flush()

    def offer(self, bundle: Bundle, at: float = NOW, key: SourceKey | None = ("r", 0)) -> str:
        """Offer messages to the slot and return what becomes of them."""
        others = gathered_together([key], side_by_side([bundle]), at, self.gathered, Connector()).others
        if not others:
            return "gathered"
        return "odd" if others[0][1] is None else "in order"


def test_only_what_is_simply_next_is_gathered() -> None:
    one = One(Gathered())
    assert one.offer(bundle_of(41, 42)) == "odd"
    assert one.offer(bundle_of(39, 40)) == "odd"
    assert one.offer(bundle_of(40, 41), key=None) == "odd"
    assert one.offer(bundle_of(40, 41), key=("another", 0)) == "odd"
    assert one.offer(Bundle.of([(b"t", (40).to_bytes(8, "big"), b"\xc1")])) == "odd"
    mixed = [*bundle_of(40, 41), *bundle_of(42, 43)]
    assert one.offer(Bundle.of(mixed)) == "odd"
    assert one.offer(bundle_of(40, 42)) == "gathered"
    assert one.offer(bundle_of(40, 42)) == "odd"
    assert one.offer(bundle_of(42, 43)) == "gathered"
    position = one.stream.position
    assert position is not None
    assert (position.last, one.stream.counts.batches) == (42, 43)


def test_nothing_is_gathered_while_a_stream_waits_for_a_replay() -> None:
    gathered = Gathered()
    slot = gathered.add(("r", 0))
    stream = SourceStream(
        Source("r", 0, "m", "t", "m/s/t", "tcp://127.0.0.1:1", replay_endpoint="tcp://127.0.0.1:2"),
        Connector(),
        lambda: NOW,
        slot=slot,
    )
    one = One(gathered, "other")
    stream.feed_all(bundle_of(0, 40), NOW)
    stream.asked()
    stream.replayed([(seq, payload(seq)) for seq in range(40)], NOW)
    stream.replay_ended("end", NOW)
    assert one.offer(bundle_of(40, 41), key=("r", 0)) == "gathered"
    stream.feed_all(bundle_of(45, 46), NOW)
    assert one.offer(bundle_of(41, 42), key=("r", 0)) == "odd"
    assert stream.ask is not None
    assert stream.ask.first == 40


def test_a_full_slot_leaves_the_batches_to_the_stream() -> None:
    one = One(Gathered())
    seq = 40
    while one.offer(bundle_of(seq, seq + 1)) == "gathered":
        seq += 1
    assert seq == 40 + SLOT_BATCHES
    assert one.offer(bundle_of(seq, seq + 1)) == "in order"
    one.stream.due(NOW)
    assert one.offer(bundle_of(seq, seq + 1)) == "gathered"
    large = SLOT_BYTES // 8
    assert one.offer(bundle_of(seq + 1, seq + 2, large)) == "in order"


def test_nothing_is_gathered_where_records_do_not_linger() -> None:
    one = One(Gathered(), linger_seconds=0.0)
    assert one.offer(bundle_of(40, 41)) == "in order"
    (record,) = one.stream.feed_all(bundle_of(40, 41), NOW)
    assert record.last_seq == 40


def test_what_is_asked_of_a_stream_counts_what_is_gathered_and_its_run_is_told() -> None:
    told: list[float] = []
    gathered = Gathered()
    one = One(gathered)
    stream = SourceStream(
        source("s"),
        Connector(linger_seconds=1.0),
        lambda: NOW,
        hearers=Hearers(opened=told.append),
        slot=gathered.add(("s", 0)),
    )
    stream.feed_all(bundle_of(0, 40), NOW)
    stream.flush()
    told.clear()
    assert one.offer(bundle_of(40, 41), NOW + 1, ("s", 0)) == "gathered"
    assert told == []
    assert stream.counts.last_received_at == NOW + 1
    assert told == [NOW + 2]
    assert gathered.due(NOW + 5, 1.0) == []
    assert one.offer(bundle_of(41, 42), NOW + 1.5, ("s", 0)) == "gathered"
    (record,) = stream.due(NOW + 2)
    assert (record.first_seq, record.last_seq) == (40, 41)
    assert one.offer(bundle_of(42, 43), NOW + 3, ("s", 0)) == "gathered"
    assert stream.due(NOW + 3.5) == []
    assert told == [NOW + 2, NOW + 4]
    (record,) = stream.due(NOW + 4)
    assert (record.first_seq, record.last_seq) == (42, 42)
    assert one.offer(bundle_of(43, 44), NOW + 5, ("s", 0)) == "gathered"
    assert len(stream.due(NOW + 6)) == 1
    assert told == [NOW + 2, NOW + 4]


def test_a_batch_that_has_to_be_looked_at_is_not_gathered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(normaliser, "LOOK_EVERY", 8)
    one = One(Gathered())
    found = []
    for seq in range(40, 72):
        found.append(one.offer(bundle_of(seq, seq + 1)))
        if found[-1] != "gathered":
            one.stream.feed_all(bundle_of(seq, seq + 1), NOW)
    assert set(found) == {"odd", "gathered"}
    assert found.count("odd") == 4


def test_what_is_due() -> None:
    gathered = Gathered()
    ones = [One(gathered, f"r{number}") for number in range(3)]
    for number, one in enumerate(ones[:2]):
        assert one.offer(bundle_of(40, 41), NOW + number, one.key) == "gathered"
        assert one.offer(bundle_of(41, 42), NOW + number + 5, one.key) == "gathered"
    assert gathered.due(NOW + 2.5, 3.0) == []
    assert gathered.due(NOW + 3.5, 3.0) == [ones[0].key]
    assert gathered.due(NOW + 4.0, 3.0) == [ones[0].key, ones[1].key]
    # A clock that was set back makes nobody wait longer.
    assert gathered.due(NOW + 0.5, 3.0) == [ones[1].key]
    (record,) = ones[0].stream.due(NOW + 3.5)
    assert (record.first_seq, record.last_seq) == (40, 41)
    assert gathered.due(NOW + 4.0, 3.0) == [ones[1].key]


def test_many_sources_have_slots_and_give_them_back() -> None:
    gathered = Gathered()
    first = One(gathered, "first")
    assert first.offer(bundle_of(40, 41), key=first.key) == "gathered"
    ones = [One(gathered, f"r{number}") for number in range(2 * FIRST_SLOTS)]
    for one in ones:
        assert one.offer(bundle_of(40, 41), key=one.key) == "gathered"
    assert first.offer(bundle_of(41, 42), key=first.key) == "gathered"
    assert len({one.slot.number for one in [first, *ones]}) == 1 + len(ones)
    taken = ones[5].slot.number
    gathered.remove(ones[5].slot)
    gathered.remove(ones[5].slot)
    assert ones[5].offer(bundle_of(41, 42), key=ones[5].key) == "odd"
    assert ones[5].stream.flush() == []
    new = One(gathered, "new")
    assert new.slot.number == taken
    assert new.stream.due_at is None
    assert ones[5].stream.flush() == []
    for one in [first, *ones[:5], *ones[6:]]:
        (record,) = one.stream.flush()
        assert record.first_seq == 40
    assert ones[5].slot.number == gathered_module.NOTHING


def test_the_loop_is_compiled_once() -> None:
    """A second time would stop the connector for seconds."""
    warm_up()
    one = One(Gathered())
    assert one.offer(bundle_of(40, 42)) == "gathered"
    assert one.offer(bundle_of(41, 42)) == "odd"
    signatures: list[Any] = cast(Any, gather).signatures
    assert len(signatures) == 1


@pytest.mark.parametrize("in_turn", [False, True])
def test_salts_of_gathered_batches_are_named(in_turn: bool) -> None:
    names, gathered, key = Pseudonyms(b"a key of a fleet"), Gathered(), ("r", 0)
    forwarding = Forwarding(salts=names)
    stream = SourceStream(source("r"), SETTINGS, lambda: NOW, slot=gathered.add(key), forwarding=forwarding)
    store = {"type": "BlockStored", "block_hashes": [-7], "block_size": 16, "cache_salt": "pepper"}
    frames = [(b"t", seq.to_bytes(8, "big"), encode([NOW, [store], 0])) for seq in range(60)]
    records = [*stream.feed_all(Bundle.of(frames[:57]), NOW), *stream.flush()]
    bundle = Bundle.of(frames[57:])
    if in_turn:
        dealt = scanned_together([stream], [bundle], [NOW], gathered, SETTINGS, forwarding)
        assert dealt.slots.keys() == {0}
    else:
        together = gathered_together([key], side_by_side([bundle]), NOW, gathered, SETTINGS, forwarding)
        assert together.others == []
    records = decoded([*records, *stream.flush()])
    events = events_in(records)
    salts = [event.salt for event in events if isinstance(event, Stored)]
    assert salts == [names.name("pepper")] * 60
