"""What the scanner does not give up decodes to exactly what decoding event by event gives."""

from __future__ import annotations

import random
from itertools import accumulate, pairwise
from typing import Any, get_args

import msgspec
import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from connectors.engines.catalogue import CATALOGUE
from connectors.engines.recognition import StreamEra
from connectors.frames.bundle import MAX_SEQUENCE, Bundle, Frames
from connectors.normalise.columns import (
    DONE,
    END,
    EVENTS,
    FINGERPRINT,
    PAYLOAD_BYTES,
    ROWS,
    SEQ,
    START,
    STATUS,
    STRETCH_END,
)
from connectors.normalise.errors import FrameError
from connectors.normalise.forwarding import Forwarding
from connectors.normalise.links import Linker
from connectors.normalise.pseudonyms import Pseudonyms
from connectors.normalise.reference_decoder import ReferenceDecoder
from connectors.normalise.scan import content_of, names_of, scan, scan_joined
from connectors.normalise.scan_tables import scan_tables
from connectors.normalise.scanned import Scanned
from connectors.normalise.scanner.payloads import transcode
from connectors.order.sequence import fingerprint_of
from pipeline.simulator.engine import events as simulator
from pipeline.simulator.wire.encoding import encoded_batch
from pipeline.simulator.wire.eras import ERAS
from pipeline.simulator.wire.hashing import HashForm
from schemas.events import Batch, Removed, Stored
from tests.support.inputs.captures import NAMES, PUBLISHERS, TIERS, captured_frames

FORMS = get_args(HashForm)
RECEIVED_AT = 1_800_000_000.25
MAX_FRAME_BYTES = 1 << 16

encode = msgspec.msgpack.encode
decode = msgspec.msgpack.Decoder(Batch).decode


def messages(payloads: list[bytes], first: int = 0) -> Bundle:
    return Bundle.of((b"t", seq.to_bytes(8, "big"), payload) for seq, payload in enumerate(payloads, first))


def scanned(payloads: list[bytes], *, salts: Pseudonyms | None = None) -> Scanned:
    return scan(
        messages(payloads),
        RECEIVED_AT,
        max_frame_bytes=MAX_FRAME_BYTES,
        forwarding=Forwarding(salts=salts),
    )


def encoded(result: Scanned, column: int) -> bytes:
    start, end = result.columns[[START, END], column]
    return result.encoded[start:end].tobytes()


def reference(
    payload: bytes,
    seq: int,
    *,
    linker: Linker | None = None,
    salts: Pseudonyms | None = None,
) -> Batch | None:
    decoder = ReferenceDecoder(StreamEra(), Forwarding(None, linker, salts))
    try:
        return decoder.decode_batch(payload, seq=seq, received_at=RECEIVED_AT, replayed=False)
    except FrameError:
        return None


def done_and_equal(payloads: list[bytes], *, salts: Pseudonyms | None = None) -> int:
    """Check all that is done against the reference decoder; return how many are."""
    result = scanned(payloads, salts=salts)
    done = 0
    for seq, payload in enumerate(payloads):
        assert result.columns[FINGERPRINT, seq] == fingerprint_of(payload)
        assert result.columns[PAYLOAD_BYTES, seq] == len(payload)
        if result.columns[STATUS, seq] == DONE:
            done += 1
            batch = decode(encoded(result, seq))
            assert batch == reference(payload, seq, salts=salts)
            assert result.columns[EVENTS, seq] == batch.engine_events
        else:
            assert encoded(result, seq) == b""
    return done


@pytest.mark.parametrize("name", [*NAMES, *TIERS])
def test_every_batch_of_every_capture_is_done(name: str) -> None:
    payloads = [payload for _, _, payload in captured_frames(name) if len(payload) <= MAX_FRAME_BYTES]
    assert done_and_equal(payloads) == len(payloads)


@pytest.mark.parametrize("name", PUBLISHERS)
def test_what_it_does_of_other_publishers_batches_is_right(name: str) -> None:
    payloads = [frames[-1] for frames in captured_frames(name)]
    done = done_and_equal(payloads)
    # Whether that medium is store-only, only the engine tells.
    by_engine = sum(b"REMOTE" in payload for payload in payloads)
    assert done == (len(payloads) - by_engine if name.startswith(("trtllm", "atom")) else 0)


def digests(rng: random.Random, count: int) -> tuple[bytes, ...]:
    return tuple(rng.randbytes(32) for _ in range(count))


def simulated(rng: random.Random) -> list[Any]:
    """Return what an engine may report in one step."""
    events: list[Any] = []
    for _ in range(rng.randrange(12)):
        medium, group = rng.choice(("gpu", "gpu", "cpu")), rng.choice((0, 0, 1, 70))
        if rng.random() < 0.6:
            events += [simulator.Removed(digests(rng, rng.randrange(4)), medium, group)] * rng.randrange(4)
        elif rng.random() < 0.05:
            events.append(simulator.Cleared())
        else:
            count = rng.choice((0, 1, 2, 33))
            events.append(
                simulator.Stored(
                    digests(rng, count),
                    rng.choice((None, rng.randbytes(32))),
                    tuple(rng.choice((5, 200, 40_000, 150_000)) for _ in range(16 * count)),
                    16,
                    medium,
                    group,
                    rng.choice(("full_attention", "sliding_window")),
                    rng.choice((None, 0, 7, 300, 2**40)),
                    rng.choice((None, "", "adapter", "a" * 40)),
                    rng.choice((None, "chat", "")),
                )
            )
    return events


@pytest.mark.parametrize("era", ERAS)
def test_every_batch_of_every_era_is_done(era: str) -> None:
    rng = random.Random(era)
    for form in FORMS:
        payloads = [
            encoded_batch(ERAS[era], 1e9 + n / 7, simulated(rng), rank=n % 3, hash_form=form)
            for n in range(60)
        ]
        assert done_and_equal(payloads) == len(payloads)


def test_what_it_writes_is_what_the_records_encoder_writes_but_for_the_width_of_lengths() -> None:
    payloads = [payload for name in NAMES for _, _, payload in captured_frames(name)[::7]]
    result = scanned(payloads)
    for seq, payload in enumerate(payloads):
        batch = reference(payload, seq)
        assert batch is not None
        runs = sum(isinstance(event, Removed | Stored) for event in batch.events)
        # A store could have sixteen fields, for which the encoder leaves room in the head of each.
        heads = 2 * sum(isinstance(event, Stored) for event in batch.events)
        assert 0 <= len(encoded(result, seq)) + heads - len(encode(batch)) <= 2 + runs


def wide(width: int, value: int) -> msgspec.Raw:
    """Return a whole number in more bytes than it needs."""
    heads = {
        1: b"\xcc",
        2: b"\xcd",
        4: b"\xce",
        8: b"\xcf",
        -1: b"\xd0",
        -2: b"\xd1",
        -4: b"\xd2",
        -8: b"\xd3",
    }
    return msgspec.Raw(heads[width] + value.to_bytes(abs(width), "big", signed=width < 0))


NUMBERS = [
    *(wide(width, value) for width in (1, 2, 4, 8, -1, -2, -4, -8) for value in (0, 1, 127)),
    *(wide(width, -1) for width in (-1, -2, -4, -8)),
    *(
        sign * ((1 << bits) + by)
        for bits in (5, 7, 8, 15, 16, 31, 32, 62)
        for by in (-1, 0)
        for sign in (1, -1)
    ),
    2**63 - 1,
    2**63,
    2**64 - 1,
    -(2**63),
    1.0,
    True,
    None,
    "7",
    b"12345678",
    b"123456789",
    b"0123456789abcdef",
    b"",
    b"x" * 256,
    [],
    {},
]


@pytest.mark.parametrize("number", NUMBERS, ids=lambda number: encode(number).hex()[:24])
def test_numbers_of_all_widths_and_what_is_none(number: Any) -> None:
    good = {"type": "BlockStored", "block_hashes": [1], "block_size": 16}
    payloads = [
        encode([1.5, [event], 0])
        for event in (
            {"type": "BlockRemoved", "block_hashes": [5, number, 6]},
            ["BlockRemoved", [], None, number],
            *(
                good | {field: number}
                for field in (
                    "parent_block_hash",
                    "block_size",
                    "lora_id",
                    "lora_name",
                    "medium",
                    "group_idx",
                    "kv_cache_spec_kind",
                    "kv_cache_spec_sliding_window",
                    "session_id",
                    "token_ids",
                )
            ),
            number,
        )
    ]
    payloads += [encode([number, [], 0]), encode([1.5, number]), encode([1.5, [], number])]
    done_and_equal(payloads)


SHORT_TEXTS = ["", "GPU", "gpu", "CPU", "cpu", "CPU_PINNED", "cpu_tier1", "é", "a\x00b", "x" * 31, "Disk"]
LONG_TEXTS = ["x" * 300, "x" * 1_024, "x" * 1_025, "é" * 1_024, "é" * 1_025]


@pytest.mark.parametrize("text", SHORT_TEXTS + LONG_TEXTS)
def test_texts(text: str) -> None:
    for field in ("medium", "lora_name", "lora_id", "kv_cache_spec_kind", "session_id", "from_the_future"):
        event = {"type": "BlockStored", "block_hashes": [1], "block_size": 16, field: text}
        done_and_equal([encode([1.5, [event, event], 0])])
    medium = ["BlockRemoved", [1], text]
    done_and_equal(
        [encode([1.5, [medium, medium, ["BlockRemoved", [2]], ["BlockRemoved", [3], "GPU", 0]], 0])]
    )


def test_removals_of_one_place_are_merged_however_it_is_spelled() -> None:
    places: list[list[Any]] = [[], [None], ["GPU"], [""], ["GPU", None], ["GPU", 0]]
    events = [["BlockRemoved", [n], *place] for n, place in enumerate(places)]
    result = scanned([encode([1.5, events, 0])])
    assert decode(encoded(result, 0)).events == [Removed(b"".join(n.to_bytes(8, "big") for n in range(6)))]


MANY = [["BlockRemoved", [n], "GPU"] for n in range(8_192)]
ARRAY = [
    "BlockStored",
    [1, 2],
    2**63,
    [1, 300, 70_000],
    16,
    None,
    "GPU",
    "ad",
    [None],
    3,
    "mamba",
    128,
    "LOCAL",
]
MAP = {
    "type": "BlockStored",
    "block_hashes": [2**63, b"1" * 32],
    "parent_block_hash": None,
    "token_ids": [5] * 20,
    "block_size": 16,
    "lora_id": 4,
    "medium": "CPU",
    "extra_keys": [["x", ["mm", -3]], None],
    "session_id": "s",
}
SALTED = MAP | {"cache_salt": "pepper", "lora_name": "x"}
SEEDS = [
    encode(
        [1.5, [ARRAY, MAP, ["BlockRemoved", [3], "GPU"], ["BlockRemoved", [-4]], ["AllBlocksCleared"]], 0]
    ),
    encode({"ts": 1.5, "events": [dict(reversed(MAP.items())), {"type": "AllBlocksCleared"}], "rank": 0}),
    encode({"rank": None, "events": [{"type": "BlockRemoved", "block_hashes": [1] * 20}], "ts": 2.5}),
    encode([1.5, [SALTED], 0]),
]
OF_SALTS = Pseudonyms(b"a key of a fleet")


def test_the_seeds_are_done() -> None:
    assert done_and_equal(SEEDS) == len(SEEDS)
    assert done_and_equal(SEEDS, salts=OF_SALTS) == len(SEEDS)


def test_long_runs_and_large_payloads_are_given_up() -> None:
    assert done_and_equal([encode([1.5, MANY[:8_191], 0]), encode([1.5, MANY, 0])]) == 0
    small = scan(messages([encode([1.5, MANY[:3_000], 0])]), 1.0, max_frame_bytes=1 << 20)
    assert small.columns[STATUS, 0] == DONE


@pytest.mark.parametrize("payload", SEEDS, ids=len)
def test_a_cut_payload_is_given_up_even_if_the_rest_lies_behind_it(payload: bytes) -> None:
    for at in range(1, len(payload)):
        result = scanned([payload[:at], payload[at:], payload])
        assert result.columns[STATUS].tolist() == [0, 0, 1]
        assert result.columns[STRETCH_END].tolist() == [1, 2, 3]


@pytest.mark.parametrize("payload", SEEDS, ids=len)
def test_every_flipped_bit_gives_up_or_what_the_reference_decoder_gives(payload: bytes) -> None:
    changed = []
    for at in range(len(payload)):
        for bit in range(8):
            mutant = bytearray(payload)
            mutant[at] ^= 1 << bit
            changed.append(bytes(mutant))
    assert done_and_equal(changed, salts=OF_SALTS) > len(changed) // 10


mutations = st.lists(
    st.tuples(
        st.integers(0, 10_000), st.sampled_from(["set", "insert", "delete", "cut"]), st.binary(max_size=9)
    ),
    max_size=4,
)
heads = st.sampled_from([bytes([head]) for head in range(0x80, 0x100)])


@given(st.sampled_from(SEEDS), mutations, heads, st.sampled_from([None, OF_SALTS]))
def test_mutants(
    seed: bytes,
    changes: list[tuple[int, str, bytes]],
    head: bytes,
    salts: Pseudonyms | None,
) -> None:
    payload = seed
    for place, how, what in changes:
        at = place % (len(payload) + 1)
        if how == "set":
            payload = payload[:at] + head + payload[at + 1 :]
        elif how == "insert":
            payload = payload[:at] + what + payload[at:]
        elif how == "delete":
            payload = payload[:at] + payload[at + len(what) :]
        else:
            payload = payload[:at]
    done_and_equal([payload, seed], salts=salts)


@given(st.binary(max_size=80))
@example(b"\x91" * 80)
@example(b"\x92\xcb" + bytes(8) + b"\x91" * 60 + b"\xc0")
@example(b"\x92\xcb" + bytes(8) + b"\xdd\xff\xff\xff\xff")
@example(b"\x92\xcb" + bytes(8) + b"\x91\xdf\xff\xff\xff\xff")
@example(b"\x92\xcb" + bytes(8) + b"\x91\x92\xacBlockRemoved\xdd\x7f\xff\xff\xff\x01")
def test_any_bytes(payload: bytes) -> None:
    done_and_equal([payload, b"\x92\xcb" + bytes(8) + b"\x91" + payload])


@pytest.mark.parametrize(
    ("linker", "salts"),
    [(None, None), (Linker(b"a key of a fleet"), None), (Linker(b"a key of a fleet"), OF_SALTS)],
    ids=["no links", "links", "links and salts"],
)
@pytest.mark.parametrize("room", range(0, 4_000, 97))
def test_it_never_writes_beyond_the_room_it_is_given(
    room: int, linker: Linker | None, salts: Pseudonyms | None
) -> None:
    told = MAP | {"token_ids": [*range(32)], "medium": "GPU", "cache_salt": "s" * 200}
    seeds = [*SEEDS, encode([1.5, [told, told], 0])] * 4
    bundle = messages(seeds)
    tables = scan_tables(CATALOGUE)
    memory = np.full(10_000, 0xA5, np.uint8)
    columns = np.empty((ROWS, len(bundle)), np.int64)
    used = transcode(
        bundle.data,
        bundle.table,
        np.array([[len(bundle)], [0], np.array([RECEIVED_AT]).view(np.int64)]),
        MAX_FRAME_BYTES,
        content_of(linker),
        *names_of(Forwarding(None, linker, salts)),
        tables.forms,
        tables.media,
        memory[:room],
        columns,
    )
    assert used <= room
    assert set(memory[room:].tolist()) == {0xA5}
    for seq, payload in enumerate(seeds):
        if columns[STATUS, seq] == DONE:
            batch = decode(memory[columns[START, seq] : columns[END, seq]].tobytes())
            assert batch == reference(payload, seq, linker=linker, salts=salts)


def test_stretches_end_where_numbers_or_batches_break() -> None:
    good, bad = SEEDS[0], b"\xc1"
    frames: list[Frames] = [
        (b"t", seq.to_bytes(8, "big"), payload)
        for seq, payload in [
            (5, good),
            (6, good),
            (8, good),
            (9, bad),
            (10, good),
            (MAX_SEQUENCE, good),
            (11, good),
        ]
    ]
    frames.insert(2, [b"odd"])
    bundle = Bundle.of(frames)
    result = scan(bundle, RECEIVED_AT, max_frame_bytes=MAX_FRAME_BYTES)
    assert result.columns[SEQ].tolist() == [5, 6, -1, 8, 9, 10, -1, 11]
    assert result.columns[STATUS].tolist() == [1, 1, 0, 1, 0, 1, 0, 1]
    assert result.columns[STRETCH_END].tolist() == [2, 2, 3, 4, 5, 6, 7, 8]
    assert [result.stretch(0, due) for due in (4, 5)] == [0, 2]
    assert result.stretch(2, 7) == 2
    assert [tuple(frames[1:]) for frames in bundle] == [tuple(frames[1:]) for frames in frames]


@given(st.lists(st.lists(st.sampled_from([*SEEDS, b"\xc1", b""]), max_size=4), max_size=6), st.randoms())
def test_bundles_scanned_together_are_what_each_is_alone(
    parts: list[list[bytes]], rng: random.Random
) -> None:
    # Numbers may go on from one bundle to the next: that is no stretch.
    bundles = [messages(payloads, rng.randrange(4)) for payloads in parts]
    bundles.append(Bundle.of([[b"odd"], (b"t", bytes(8), SEEDS[0])]))
    times = [RECEIVED_AT + rng.choice((0.0, -1e9, 0.125)) for _ in bundles]
    joined, columns = scan_joined(bundles, times, max_frame_bytes=MAX_FRAME_BYTES)
    ends = accumulate(map(len, bundles), initial=0)
    together = [Scanned(joined, columns[:, first:end]) for first, end in pairwise(ends)]
    for bundle, at, result in zip(bundles, times, together, strict=True):
        alone = scan(bundle, at, max_frame_bytes=MAX_FRAME_BYTES)
        shift = result.columns[[START, END]].min(initial=0 if not len(bundle) else 1 << 40)
        shifted = result.columns.copy()
        shifted[[START, END]] -= shift
        assert shifted.tolist() == alone.columns.tolist()
        assert [encoded(result, i) for i in range(len(bundle))] == [
            encoded(alone, i) for i in range(len(bundle))
        ]
        for i in range(len(bundle)):
            if result.columns[STATUS, i] == DONE:
                batch = decode(encoded(result, i))
                assert (batch.ts, batch.received_at) == (result.published_at(i), at)


def test_payloads_above_the_limit_are_given_up() -> None:
    result = scan(messages(SEEDS), 1.0, max_frame_bytes=len(SEEDS[1]))
    assert [bool(status) for status in result.columns[STATUS]] == [len(p) <= len(SEEDS[1]) for p in SEEDS]
