"""The wire bytes: equal to those of real releases where there is a capture, of the right shape everywhere."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from pipeline.simulator.engine.events import Cleared, Event, Removed, Stored
from pipeline.simulator.wire.encoding import encoded_batch
from pipeline.simulator.wire.eras import ERAS
from tests.support.inputs.captures import captured_frames
from tests.support.wire import STORED_FIELDS

CAPTURED = {
    "vllm-0.9.2-array-builtin-hash": "vllm-0.9",
    "vllm-0.16.0-array": "vllm-0.14",
    "vllm-0.23.0-array-offload-cpu": "vllm-0.22",
    "vllm-0.25.1-map-dp0": "vllm-0.24",
    "vllm-0.25.1-map-dp1": "vllm-0.24",
    "vllm-0.33.0-map": "vllm-0.33",
    "sglang-0.5.15-array": "sglang-0.5.15",
}

# Array length of (BlockStored, BlockRemoved) with the tag, from the notes on each release.
ARRAY_LENGTHS = {
    "vllm-0.9.0": (6, 2),
    "vllm-0.9": (6, 2),
    "vllm-0.10": (7, 3),
    "vllm-0.14": (8, 3),
    "vllm-0.17": (9, 3),
    "vllm-0.20": (10, 4),
    "vllm-0.22": (12, 4),
    "sglang-0.5.6": (6, 2),
    "sglang-0.5.15": (7, 3),
}
VLLM_MAP_KEYS = list(STORED_FIELDS[:-1])

DIGESTS = tuple(bytes([number]) * 32 for number in (0x90, 0x91))
STORED = Stored(DIGESTS, None, tuple(range(8)), 4, session="session-1")


def _digest(shown: int | bytes, signed: bool) -> bytes:
    """Return a digest that is shown as this hash."""
    if isinstance(shown, bytes):
        return shown
    return (
        shown.to_bytes(8, "big", signed=True) + bytes(24) if signed else bytes(24) + shown.to_bytes(8, "big")
    )


def _event(era: str, wired: Any) -> tuple[Event, bool]:
    """Rebuild the event behind captured bytes, and say whether it has keys that the simulator never makes."""
    tag = wired[0] if isinstance(wired, list) else wired["type"]
    if tag == "AllBlocksCleared":
        return Cleared(), False
    fields = ERAS[era].stored_fields if tag == "BlockStored" else ERAS[era].removed_fields
    named = dict(zip(fields, wired[1:], strict=True)) if isinstance(wired, list) else wired
    signed = ERAS[era].hash_form == "int64"
    digests = tuple(_digest(shown, signed) for shown in named["block_hashes"])
    medium = "cpu" if named.get("medium") == "CPU" else "gpu"
    group = named.get("group_idx") or 0
    if tag == "BlockRemoved":
        return Removed(digests, medium, group), False
    parent, lora_name = named["parent_block_hash"], named.get("lora_name")
    plain = [None if lora_name is None else [lora_name]] * len(digests)
    return Stored(
        digests,
        None if parent is None else _digest(parent, signed),
        tuple(named["token_ids"]),
        named["block_size"],
        medium,
        group,
        lora_id=named["lora_id"],
        lora_name=lora_name,
        session=named.get("session_id"),
    ), (named.get("extra_keys") or plain) != plain


def _shape(wired: Any) -> Any:
    return list(wired) if isinstance(wired, dict) else (wired[0], len(wired))


@pytest.mark.parametrize("capture", CAPTURED)
def test_every_captured_batch_comes_out_byte_for_byte(capture: str) -> None:
    era = CAPTURED[capture]
    frames = captured_frames(capture)
    equal = 0
    for _topic, _sequence, payload in frames:
        ts, wired, rank = msgspec.msgpack.decode(payload)
        rebuilt = [_event(era, event) for event in wired]
        encoded = encoded_batch(ERAS[era], ts, [event for event, _ in rebuilt], rank)
        if any(foreign for _, foreign in rebuilt):
            again = msgspec.msgpack.decode(encoded)[1]
            assert [_shape(event) for event in again] == [_shape(event) for event in wired]
        else:
            assert encoded == payload
            equal += 1
    assert equal >= 0.95 * len(frames)


@pytest.mark.parametrize("era", ARRAY_LENGTHS)
def test_arrays_have_the_length_of_their_era(era: str) -> None:
    events = [STORED, Removed(DIGESTS[:1]), Cleared()]
    batch = msgspec.msgpack.decode(encoded_batch(ERAS[era], 12.5, events, rank=3))
    assert batch[0] == 12.5
    assert batch[2:] == ([] if era == "vllm-0.9.0" else [3])
    stored, removed = ARRAY_LENGTHS[era]
    assert {(event[0], len(event)) for event in batch[1]} == {
        ("BlockStored", stored),
        ("BlockRemoved", removed),
        ("AllBlocksCleared", 1),
    }
    assert len(ERAS[era].stored_fields) + 1 == stored


@pytest.mark.parametrize("era", sorted(ERAS.keys() - ARRAY_LENGTHS.keys()))
def test_maps_have_the_keys_of_their_era(era: str) -> None:
    events = [STORED, Removed(DIGESTS[:1]), Cleared()]
    stored, removed, cleared = msgspec.msgpack.decode(encoded_batch(ERAS[era], 12.5, events))[1]
    assert cleared == {"type": "AllBlocksCleared"}
    if era.startswith("sglang"):
        assert list(stored) == [*VLLM_MAP_KEYS[:7], "session_id"]
        assert list(removed) == ["type", "block_hashes", "medium"]
    elif era.startswith("trtllm"):
        assert list(stored) == VLLM_MAP_KEYS[:8]
        assert list(removed) == ["type", "block_hashes", "medium"]
    else:
        knows_sessions = era in ("vllm-0.30", "vllm-0.33")
        assert list(stored) == VLLM_MAP_KEYS + ["session_id"] * knows_sessions
        assert list(removed) == ["type", "block_hashes", "medium", "group_idx"]
    assert stored["lora_id"] is None


def test_gpu_removals_of_vllm_carry_one_hash_each_and_sglangs_many() -> None:
    events = [Removed(DIGESTS)]
    for era, hashes in (("vllm-0.33", [1, 1]), ("vllm-0.9", [1, 1]), ("sglang-0.5.15", [2])):
        batch = msgspec.msgpack.decode(encoded_batch(ERAS[era], 0.0, events))[1]
        assert [
            len(event["block_hashes"] if isinstance(event, dict) else event[1]) for event in batch
        ] == hashes


def test_sglang_before_coalescing_stores_block_by_block() -> None:
    first, second = msgspec.msgpack.decode(encoded_batch(ERAS["sglang-0.5.15"], 0.0, [STORED]))[1]
    assert (first[2], first[3]) == (None, [0, 1, 2, 3])
    assert (second[2], second[3]) == (first[1][0], [4, 5, 6, 7])


def test_cpu_placeholders_name_blocks_and_nothing_else() -> None:
    stored = Stored(DIGESTS, None, (), 16, "cpu")
    events = [stored, Removed(DIGESTS, "cpu")]
    old = msgspec.msgpack.decode(encoded_batch(ERAS["vllm-0.17"], 0.0, events))[1]
    assert old == [
        ["BlockStored", list(DIGESTS), None, [], 16, None, "CPU", None, None],
        ["BlockRemoved", list(DIGESTS), "CPU"],
    ]
    new = msgspec.msgpack.decode(encoded_batch(ERAS["vllm-0.24"], 0.0, events))[1]
    assert [len(event["block_hashes"]) for event in new] == [1, 1, 2]
    assert {key: value for key, value in new[0].items() if key != "block_hashes"} == {
        "type": "BlockStored",
        "parent_block_hash": None,
        "token_ids": [],
        "block_size": 0,
        "lora_id": None,
        "medium": "CPU",
        "lora_name": None,
        "group_idx": 0,
    }


def test_the_hash_form_can_be_chosen() -> None:
    for form, kind in (("bytes32", bytes), ("bytes16", bytes), ("uint64", int)):
        stored = msgspec.msgpack.decode(encoded_batch(ERAS["vllm-0.33"], 0.0, [STORED], 0, form))[1][0]
        assert {type(shown) for shown in stored["block_hashes"]} == {kind}
