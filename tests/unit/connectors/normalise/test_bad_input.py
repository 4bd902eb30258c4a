"""Whatever arrives costs at most the event or frame it is in, under its exact bounded reason."""

import random
import struct
import tracemalloc
from collections.abc import Callable
from typing import Any, get_args

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from connectors.normalise import reference_decoder
from connectors.normalise.errors import FrameError
from connectors.normalise.normaliser import Normaliser
from connectors.normalise.reference_decoder import _complete
from connectors.normalise.single import COMPILED
from schemas.events import Batch, Cleared, Event, Removed, Stored, Undecodable
from schemas.hashes import unpack_hashes
from schemas.reasons import UndecodableReason
from tests.support.calls import calls
from tests.support.decoders import Decoders
from tests.support.inputs.captures import NAMES, captured_frames
from tests.support.suite.night import by_day, examples, first_by_day

REASONS = frozenset(get_args(UndecodableReason))
MAX_FRAME_BYTES = 1 << 16

encode = msgspec.msgpack.encode


def payloads(name: str, every: int = 1) -> list[bytes]:
    frames = captured_frames(name)
    return [payload for _, _, payload in frames[::every]]


SAMPLES = [payload for name in NAMES for payload in payloads(name, 97) if len(payload) < 6_000]


VLLM = encode([0.0, [["BlockStored", [2**63], None, [], 1, None, "GPU"]], 0])


def normalise(payload: bytes) -> Batch:
    """Decode as a stream's first batch (event by event) and as a later one (at once where possible)."""
    normaliser = Normaliser(max_frame_bytes=MAX_FRAME_BYTES)
    first = normaliser.normalise(payload, seq=3, received_at=9.0)
    for _ in range(3):  # the engine becomes known, so batches are no longer looked at one by one
        normaliser.normalise(VLLM, seq=0, received_at=0.0)
    assert normaliser.normalise(payload, seq=3, received_at=9.0) == first
    return first


def as_map(**fields: Any) -> dict[str, Any]:
    event = {"type": "BlockStored", "block_hashes": [1], "parent_block_hash": 2, "block_size": 16} | fields
    return {name: value for name, value in event.items() if value is not MISSING}


def removed(**fields: Any) -> dict[str, Any]:
    return {"type": "BlockRemoved", "block_hashes": [1]} | fields


MISSING = object()
INVALID_TEXT = msgspec.Raw(b"\xa2\xc3\x28")
INVALID_KEY = msgspec.Raw(b"\x81\xa1\xff\x01")
NESTED = ["BlockRemoved", [1], "GPU"]

BAD_EVENTS: list[tuple[Any, UndecodableReason]] = [
    # no type
    (None, "missing_type"),
    (7, "missing_type"),
    ("BlockStored", "missing_type"),
    (b"BlockStored", "missing_type"),
    ([], "missing_type"),
    ({}, "missing_type"),
    ({"block_hashes": [1]}, "missing_type"),
    ([None, [1]], "type_not_string"),
    ([NESTED], "type_not_string"),
    ([NESTED, NESTED], "type_not_string"),
    ([{"type": "BlockRemoved"}], "type_not_string"),
    ({"type": 1}, "type_not_string"),
    ({"type": b"BlockRemoved", "block_hashes": [1]}, "type_not_string"),
    ({"type": NESTED}, "type_not_string"),
    (["BlockMoved", [1]], "unknown_type"),
    (["blockstored", [1], None, [], 16], "unknown_type"),
    ({"type": "BlockMoved"}, "unknown_type"),
    ({"type": ""}, "unknown_type"),
    ([INVALID_TEXT], "invalid_utf8"),
    ({"type": INVALID_TEXT}, "invalid_utf8"),
    # too short
    (["BlockStored"], "truncated_tuple"),
    (["BlockStored", [1], None, []], "truncated_tuple"),
    (["BlockRemoved"], "truncated_tuple"),
    (as_map(block_hashes=MISSING), "missing_field"),
    (as_map(block_size=MISSING), "missing_field"),
    ({"type": "BlockRemoved", "medium": "GPU"}, "missing_field"),
    # hashes
    (["BlockRemoved", None], "bad_block_hashes"),
    (["BlockRemoved", 5], "bad_block_hashes"),
    (["BlockRemoved", b"12345678"], "bad_block_hashes"),
    (as_map(block_hashes={}), "bad_block_hashes"),
    (as_map(block_hashes="12345678"), "bad_block_hashes"),
    (as_map(block_hashes=None), "bad_block_hashes"),
    (["BlockRemoved", [1, None]], "nil_hash"),
    (["BlockRemoved", [None, "x"]], "nil_hash"),
    (as_map(block_hashes=[None]), "nil_hash"),
    (["BlockRemoved", ["abcdefgh"]], "bad_hash_type"),
    (["BlockRemoved", [1.0]], "bad_hash_type"),
    (["BlockRemoved", [True]], "bad_hash_type"),
    (["BlockRemoved", [[1]]], "bad_hash_type"),
    (["BlockRemoved", [NESTED]], "bad_hash_type"),
    (removed(block_hashes=[1, {}]), "bad_hash_type"),
    (["BlockRemoved", [b""]], "bad_hash_length"),
    (["BlockRemoved", [b"1234567"]], "bad_hash_length"),
    (["BlockRemoved", [1, b"1" * 31]], "bad_hash_length"),
    (removed(block_hashes=[b"1" * 33]), "bad_hash_length"),
    # parent
    (as_map(parent_block_hash="x"), "bad_parent_hash"),
    (as_map(parent_block_hash=1.5), "bad_parent_hash"),
    (as_map(parent_block_hash=[1]), "bad_parent_hash"),
    (as_map(parent_block_hash=b"123"), "bad_parent_hash"),
    (["BlockStored", [1], b"1" * 9, [], 16], "bad_parent_hash"),
    # block size
    (["BlockStored", [1], None, [], -1], "bad_block_size"),
    (["BlockStored", [1], None, [], None], "bad_block_size"),
    (["BlockStored", [1], None, [], "16"], "bad_block_size"),
    (as_map(block_size=16.0), "bad_block_size"),
    (as_map(block_size=True), "bad_block_size"),
    (as_map(block_size=1 << 32), "bad_block_size"),
    (as_map(block_size=-(2**63)), "bad_block_size"),
    # medium and group
    (["BlockRemoved", [1], 3], "bad_medium"),
    (["BlockRemoved", [1], b"GPU"], "bad_medium"),
    (as_map(medium=["GPU"]), "bad_medium"),
    (as_map(medium="é" * 1_025), "bad_medium"),
    (removed(medium=INVALID_TEXT), "invalid_utf8"),
    (["BlockRemoved", [1], "GPU", -1], "bad_group"),
    (["BlockRemoved", [1], "GPU", 65536], "bad_group"),
    (["BlockRemoved", [1], "GPU", "0"], "bad_group"),
    (as_map(group_idx=1.0), "bad_group"),
    (as_map(group_idx=[0]), "bad_group"),
    # the rest
    (as_map(lora_id=[1]), "bad_field_type"),
    (as_map(lora_name=5), "bad_field_type"),
    (as_map(lora_name="x" * 1_025), "bad_field_type"),
    (as_map(lora_id="x" * 1_025), "bad_field_type"),
    (as_map(kv_cache_spec_kind="x" * 1_025), "bad_field_type"),
    (as_map(lora_name={}), "bad_field_type"),
    (as_map(lora_name=INVALID_TEXT), "invalid_utf8"),
    (as_map(kv_cache_spec_kind=1), "bad_field_type"),
    (as_map(kv_cache_spec_sliding_window="128"), "bad_field_type"),
    (["BlockStored", [1], None, [], 16, None, "GPU", 5], "bad_field_type"),
    (["BlockStored", [1], None, [], 16, None, "GPU", INVALID_TEXT], "invalid_utf8"),
    ({"type": "BlockRemoved", "block_hashes": [1], 5: 6}, "bad_field_type"),
]


@pytest.mark.parametrize(("event", "reason"), BAD_EVENTS)
def test_a_bad_event_costs_itself_only(event: Any, reason: UndecodableReason) -> None:
    good = ["BlockRemoved", [1, 2], "GPU"]
    also_good = {"type": "BlockStored", "block_hashes": [3], "block_size": 16}
    batch = normalise(encode([1.5, [good, event, also_good, event, event, ["AllBlocksCleared"]], 0]))
    named = None
    if reason == "unknown_type":
        named = (event["type"] if isinstance(event, dict) else event[0]) or None
    assert batch.events == [
        Removed(bytes(7) + b"\1" + bytes(7) + b"\2"),
        Undecodable(reason, 3, event_type=named),
        Stored(bytes(7) + b"\3", 16, 16),
        Undecodable(reason, 3, 2, named),
        Cleared(),
    ]
    assert (batch.ts, batch.engine_events) == (1.5, 6)


@pytest.mark.parametrize(
    "event",
    [
        as_map(unknown=INVALID_TEXT, token_ids=INVALID_TEXT, extra_keys=-1.5),
        ["BlockStored", [1], 2, INVALID_TEXT, 16, None, None, None, INVALID_TEXT],
        ["BlockStored", [1], 2, "no tokens", 16] + [None] * 7 + [INVALID_TEXT, INVALID_KEY],
    ],
)
def test_what_is_not_read_cannot_be_bad(event: Any) -> None:
    batch = normalise(encode([1.5, [event]]))
    assert batch.events == [Stored(bytes(7) + b"\1", 16, 16, bytes(7) + b"\2")]


DEEP = b"\x91" * 100_000 + b"\xc0"

BAD_FRAMES: list[tuple[bytes, UndecodableReason]] = [
    (b"", "not_msgpack"),
    (b"\xc1", "not_msgpack"),
    (b"\x93", "not_msgpack"),
    (encode([1.5, [["AllBlocksCleared"]], 0])[:-1], "not_msgpack"),
    (encode([1.5, [["AllBlocksCleared"]], 0]) + b"\0", "not_msgpack"),
    (b"plain text, no message", "not_msgpack"),
    (DEEP[:MAX_FRAME_BYTES], "not_msgpack"),
    (b"\x92\xcb" + bytes(8) + b"\x91" + DEEP[-50_000:], "not_msgpack"),
    (encode(None), "not_an_envelope"),
    (encode(5), "not_an_envelope"),
    (encode("events"), "not_an_envelope"),
    (encode([]), "not_an_envelope"),
    (encode([1.5]), "not_an_envelope"),
    (encode([1.5, None]), "not_an_envelope"),
    (encode([1.5, {}]), "not_an_envelope"),
    (encode([1.5, "events"]), "not_an_envelope"),
    (encode({}), "not_an_envelope"),
    (encode({"ts": 1.5}), "not_an_envelope"),
    (encode({"events": []}), "not_an_envelope"),
    (encode({"ts": 1.5, "events": 1}), "not_an_envelope"),
    (encode({1: 1.5, 2: []}), "not_an_envelope"),
    (bytes(MAX_FRAME_BYTES + 1), "frame_too_large"),
]


@pytest.mark.parametrize(("payload", "reason"), BAD_FRAMES)
def test_a_bad_frame_is_one_undecodable(payload: bytes, reason: UndecodableReason) -> None:
    assert normalise(payload) == Batch(3, 9.0, 9.0, [Undecodable(reason, 3)], 0)


@pytest.mark.parametrize("ts", [None, "1.5", True, [], {}, b"", float("nan"), float("inf"), float("-inf")])
def test_a_bad_timestamp_does_not_cost_the_events(ts: Any) -> None:
    for envelope in ([ts, [["AllBlocksCleared"]], 0], {"ts": ts, "events": [{"type": "AllBlocksCleared"}]}):
        assert normalise(encode(envelope)) == Batch(
            3, 9.0, 9.0, [Undecodable("bad_timestamp", 3), Cleared()], 1
        )


def normalise_large(payload: bytes) -> Batch:
    return Normaliser(max_frame_bytes=16 << 20).normalise(payload, seq=0, received_at=0.0)


def traced(decode: Callable[[bytes], Batch], payload: bytes) -> tuple[Batch, int]:
    """Return what becomes of a payload, and the most bytes that were allocated meanwhile."""
    tracemalloc.start()
    try:
        return decode(payload), tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_a_50_mb_frame_is_refused_without_being_decoded() -> None:
    event = encode(["BlockRemoved", [1], "GPU"])
    count = (50 << 20) // len(event)
    payload = b"\x92" + encode(1.5) + b"\xdd" + struct.pack(">I", count) + event * count
    batch, peak = traced(normalise_large, payload)
    assert batch.events == [Undecodable("frame_too_large", 0)]
    assert peak < 1_000_000


MEMORY_OF_A_MIB = 4_000_000
"""The scanner copies a payload once, and has room for twice of it; an object for each of a million: 8 MB."""
LIST, MAP, TEXT, BYTES, EXT = b"\xdd", b"\xdf", b"\xdb", b"\xc6", b"\xc9"
ENVELOPE = b"\x92" + encode(1.5) + b"\x91"
STORED_HEAD = ENVELOPE + b"\x97" + encode("BlockStored")


@pytest.mark.parametrize("count", [0x7FFFFFFF, 0xFFFFFFFF])
@pytest.mark.parametrize(
    "before",
    [
        LIST,
        MAP,
        TEXT,
        BYTES,
        EXT,
        b"\x92" + encode(1.5) + LIST,
        ENVELOPE + LIST,
        ENVELOPE + MAP,
        STORED_HEAD + LIST,
        STORED_HEAD + b"\x91" + BYTES,
        STORED_HEAD + b"\x90\xc0" + LIST,
        STORED_HEAD + b"\x90\xc0\x90\x10\xc0" + TEXT,
        ENVELOPE + b"\x81" + encode("block_hashes") + LIST,
        ENVELOPE + b"\x82" + encode("type") + encode("BlockRemoved") + encode("block_hashes") + LIST,
    ],
)
def test_absurd_lengths_allocate_nothing(before: bytes, count: int) -> None:
    payload = before + struct.pack(">I", count) + bytes(10_000)
    batch, peak = traced(normalise, payload)
    assert [type(event) for event in batch.events] == [Undecodable]
    assert peak < 2_000_000


def test_more_events_than_any_engine_sends_are_refused_without_being_listed() -> None:
    count = (1 << 20) + 1
    payload = b"\x92" + encode(1.5) + LIST + struct.pack(">I", count) + bytes(count)
    batch, peak = traced(normalise_large, payload)
    assert batch.events == [Undecodable("not_an_envelope", 0)]
    assert peak < MEMORY_OF_A_MIB


def as_array(count: int) -> bytes:
    return LIST + struct.pack(">I", count)


MIB = 1 << 20
REMOVED = encode(["BlockRemoved", [1], "GPU"])
STORED = encode(["BlockStored", [1], None, [], 16])
COSTLY = {
    "nothing but nil": ENVELOPE[:-1] + as_array(MIB) + b"\xc0" * MIB,
    "empty arrays": ENVELOPE[:-1] + as_array(MIB) + b"\x90" * MIB,
    "empty maps": ENVELOPE[:-1] + as_array(MIB) + b"\x80" * MIB,
    "one bad event in each stretch": ENVELOPE[:-1] + as_array(200_000) + (STORED * 199 + b"\xc0") * 1_000,
    "hashes of one byte": ENVELOPE + b"\x92" + encode("BlockRemoved") + as_array(8 * MIB) + b"\x01" * 8 * MIB,
    "hashes of one byte in many events": ENVELOPE[:-1]
    + as_array(40)
    + (b"\x92" + encode("BlockRemoved") + as_array(200_000) + b"\x01" * 200_000) * 40,
}


@pytest.mark.parametrize("name", by_day(COSTLY, ("one bad event in each stretch",)))
def test_a_payload_made_to_be_slow_is_refused_for_little(name: str) -> None:
    """Each of them took seconds, or hundreds of megabytes, when it was decoded to the end."""
    batch, peak = traced(normalise_large, COSTLY[name])
    assert batch == Batch(0, 0.0, 0.0, [Undecodable("frame_too_large", 0)], 0)
    assert peak < 80_000_000
    assert calls(lambda: normalise_large(COSTLY[name])) < 1_500_000


@pytest.mark.parametrize("name", COSTLY)
def test_it_is_before_the_scanner_is_compiled(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(COMPILED, "scan_single", None)
    assert normalise_large(COSTLY[name]).events == [Undecodable("frame_too_large", 0)]


def test_an_event_of_a_million_elements_makes_no_object_of_each() -> None:
    payload = ENVELOPE + as_array(MIB) + encode("BlockRemoved") + b"\x91\x01" + b"\xc0" * (MIB - 2)
    batch, peak = traced(normalise_large, payload)
    assert batch.events == [Removed(bytes(7) + b"\x01", "gpu")]
    assert peak < MEMORY_OF_A_MIB


def test_bad_events_of_a_long_batch_cost_themselves() -> None:
    """The well-formed stretches between them are decoded together, the same as one by one."""
    rng = random.Random(1)
    events: list[Any] = [
        ["BlockRemoved", [n], "GPU"] if n % 3 else ["BlockStored", [n, n + 1], None, [], 16]
        for n in range(50_000)
    ]
    for at in rng.sample(range(len(events)), 20):
        events[at] = None
    payload = encode([1.5, events, 0])
    batch = normalise_large(payload)
    assert batch == Decoders(received_at=0.0).by_event(payload, 0)
    assert sum(event.count for event in batch.events if isinstance(event, Undecodable)) == 20


def test_a_long_run_of_removals_takes_linear_time(monkeypatch: pytest.MonkeyPatch) -> None:
    count = 100_000

    def removals(count: int) -> bytes:
        return encode([1.5, [["BlockRemoved", [n], "GPU"] for n in range(count)] + [None], 0])

    fewer, more = removals(count // 10), removals(count)
    assert calls(lambda: normalise_large(more)) < 11 * calls(lambda: normalise_large(fewer))
    joined: list[int] = []

    def complete(last: Event | None, run: list[bytes]) -> None:
        joined.append(sum(map(len, run)))
        _complete(last, run)

    monkeypatch.setattr(reference_decoder, "_complete", complete)
    batch = normalise_large(more)
    first, last = batch.events
    assert isinstance(first, Removed)
    assert sum(joined) == len(first.hashes), "hashes were joined more than once"
    assert unpack_hashes(first.hashes) == tuple(range(count))
    assert last == Undecodable("missing_type", 0)


# Fuzzing

keys = st.text(max_size=5) | st.sampled_from(["type", "block_hashes", "medium"])
values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats()
    | st.text(max_size=5)
    | st.binary(max_size=33)
    | st.sampled_from(["BlockStored", "BlockRemoved", "GPU", "type", "block_hashes"]),
    lambda inner: (
        st.lists(inner, max_size=6)
        | st.dictionaries(
            st.text(max_size=5) | st.sampled_from(["type", "block_hashes", "medium"]), inner, max_size=6
        )
    ),
    max_leaves=12,
)
hashes = st.lists(st.integers(-(2**63), 2**64 - 1) | st.binary(min_size=32, max_size=32), max_size=4)
media = st.sampled_from([None, "GPU", "CPU", "cpu"])
groups = st.sampled_from([None, 0, 1])
good_events = st.one_of(
    st.builds(lambda h, m, g: ["BlockRemoved", h, m, g], hashes, media, groups),
    st.builds(
        lambda h, m, g: {"type": "BlockRemoved", "block_hashes": h, "medium": m, "group_idx": g},
        hashes,
        media,
        groups,
    ),
    st.builds(lambda h, m, s: ["BlockStored", h, None, [], s, None, m], hashes, media, st.integers(0, 99)),
    st.builds(lambda h, m, g: as_map(block_hashes=h, medium=m, group_idx=g), hashes, media, groups),
    st.just(["AllBlocksCleared"]),
)
field_names = [
    "block_hashes",
    "parent_block_hash",
    "block_size",
    "lora_id",
    "medium",
    "lora_name",
    "group_idx",
]
odd_events = st.one_of(
    values,
    st.builds(lambda rest: ["BlockStored", *rest], st.lists(values, max_size=13)),
    st.builds(lambda rest: ["BlockRemoved", *rest], st.lists(values, max_size=4)),
    st.builds(
        lambda kind, rest: {"type": kind} | rest,
        st.sampled_from(["BlockStored", "BlockRemoved"]),
        st.dictionaries(st.sampled_from(field_names), values),
    ),
)


def check_bounds(payload: bytes) -> Batch:
    """Check what must hold for any bytes, and that decoding at once agrees with event by event."""
    batch = normalise(payload)
    undecodable = [event for event in batch.events if isinstance(event, Undecodable)]
    assert {event.reason for event in undecodable} <= REASONS
    assert sum(event.count for event in undecodable) <= max(batch.engine_events + 1, 1)
    for event in batch.events:
        if isinstance(event, Stored | Removed):
            assert len(event.hashes) % 8 == 0
            assert len(event.hashes) <= 8 * len(payload)
    msgspec.msgpack.encode(batch)
    decoders = Decoders(received_at=9.0)
    try:
        by_event = decoders.by_event(payload)
    except FrameError as error:
        by_event = Batch(3, 9.0, 9.0, [Undecodable(error.reason, 3)])
    assert batch == by_event
    assert decoders.single(payload) in (None, by_event)
    return batch


def flat(batch: Batch) -> list[tuple[Any, ...]]:
    """List a batch's good events hash by hash, so that merging does not show."""
    found: list[tuple[Any, ...]] = []
    for event in batch.events:
        if isinstance(event, Removed):
            found += [
                (block, event.medium, event.raw_medium, event.group_idx)
                for block in unpack_hashes(event.hashes)
            ]
        elif not isinstance(event, Undecodable):
            found.append((msgspec.msgpack.encode(event),))
    return found


@examples(300)
@given(st.binary(max_size=300))
def test_arbitrary_bytes(payload: bytes) -> None:
    check_bounds(payload)


@examples(300)
@given(st.lists(odd_events, max_size=4), values)
def test_arbitrary_values_in_an_envelope(events: list[Any], ts: Any) -> None:
    batch = check_bounds(encode([ts, events, 0]))
    assert batch.engine_events == len(events)
    check_bounds(encode({"ts": ts, "events": events}))


@examples(300)
@given(st.lists(st.tuples(good_events, st.lists(values, max_size=2)), max_size=6))
def test_good_events_survive_whatever_stands_between_them(groups: list[tuple[Any, list[Any]]]) -> None:
    bad_count = sum(len(bad) for _, bad in groups)
    mixed = [event for good, bad in groups for event in (good, *bad)]
    batch = check_bounds(encode([1.5, mixed, 0]))
    clean = check_bounds(encode([1.5, [good for good, _ in groups], 0]))
    assert not any(isinstance(event, Undecodable) for event in clean.events)
    assert flat(batch) == flat(clean)
    assert sum(event.count for event in batch.events if isinstance(event, Undecodable)) == bad_count


@examples(300)
@given(st.sampled_from(SAMPLES), st.data())
def test_mutated_and_truncated_captures(payload: bytes, data: st.DataObject) -> None:
    changed = bytearray(payload)
    for _ in range(data.draw(st.integers(1, 4))):
        changed[data.draw(st.integers(0, len(payload) - 1))] = data.draw(st.integers(0, 255))
    check_bounds(bytes(changed))
    check_bounds(payload[: data.draw(st.integers(0, len(payload)))])


@examples(300)
@given(st.sampled_from(SAMPLES), st.sampled_from(SAMPLES), st.data())
def test_spliced_captures(one: bytes, other: bytes, data: st.DataObject) -> None:
    cut = data.draw(st.integers(0, len(one)))
    check_bounds(one[:cut] + other[data.draw(st.integers(0, len(other))) :])
    check_bounds(one[:cut] + other + one[cut:])


@pytest.mark.parametrize("name", first_by_day(NAMES, 3))
def test_a_payload_alone_is_scanned_and_agrees(name: str) -> None:
    decoders = Decoders()
    for seq, payload in enumerate(payloads(name)):
        assert decoders.single(payload, seq) == decoders.by_event(payload, seq)
