"""Well-formed batches of every era decode to the same normalised events."""

from typing import Any

import msgspec
import pytest

from connectors.normalise.forwarding import NOTHING_FORWARDED, Forwarding
from connectors.normalise.normaliser import FIRST_LOOKS, LOOK_EVERY, Normaliser
from connectors.normalise.pseudonyms import Pseudonyms
from connectors.normalise.scan import scan_single
from schemas.events import Batch, Cleared, Event, Removed, Stored, Undecodable
from tests.support.inputs.packed import packed

PARENT = 2**64 - 2
TOKENS = list(range(32))
METADATA = {"cache_salt": "salt"}


def normalise(payload: Any) -> Batch:
    """Decode event by event (a stream's first batch is) and, where it is possible, by the scanner."""
    encoded = msgspec.msgpack.encode(payload)
    batch = Normaliser(max_frame_bytes=1 << 20).normalise(encoded, seq=7, received_at=5.0)
    single = scan_single(encoded, 7, 5.0, NOTHING_FORWARDED)
    assert single is None or single.batch == batch
    return batch


def events_of(*events: Any) -> list[Event]:
    return normalise([1.5, list(events), 0]).events


STORED = [
    "BlockStored",
    [1, 2],
    PARENT,
    TOKENS,
    16,
    None,
    "GPU",
    "ad",
    [None, None],
    3,
    "full_attention",
    128,
]


@pytest.mark.parametrize(
    ("length", "known"),
    [
        (5, {}),
        (6, {}),
        (7, {}),
        (8, {"lora": "ad"}),
        (9, {"lora": "ad"}),
        (10, {"lora": "ad", "group_idx": 3}),
        (11, {"lora": "ad", "group_idx": 3, "spec_kind": "full_attention"}),
        (12, {"lora": "ad", "group_idx": 3, "spec_kind": "full_attention", "sliding_window": 128}),
        (15, {"lora": "ad", "group_idx": 3, "spec_kind": "full_attention", "sliding_window": 128}),
    ],
)
def test_arrays_of_every_length(length: int, known: dict[str, Any]) -> None:
    event = [*STORED, "later", {"unknown": b"\xff"}, [[]]][:length]
    assert events_of(event) == [Stored(packed(1, 2), 16, 32, packed(PARENT), **known)]


def as_map(**fields: Any) -> dict[str, Any]:
    return {"type": "BlockStored", "block_hashes": [1, 2], "block_size": 16} | fields


def test_maps_with_all_and_with_few_fields_in_any_order() -> None:
    full = as_map(
        parent_block_hash=PARENT,
        token_ids=TOKENS,
        lora_id=4,
        medium="CPU",
        lora_name="ad",
        extra_keys=[["x"], None],
        group_idx=3,
        kv_cache_spec_kind="sliding_window",
        kv_cache_spec_sliding_window=128,
        locality="LOCAL",
        ownership=None,
        session_id="s",
        lookahead_token_ids=[5],
        from_the_future={"a": [1]},
    )
    expected = Stored(packed(1, 2), 16, 32, packed(PARENT), "cpu", None, 3, "sliding_window", 128, "ad")
    assert events_of(full) == [expected]
    assert events_of(dict(reversed(full.items()))) == [expected]
    assert events_of(as_map()) == [Stored(packed(1, 2), 16, 32)]


def test_a_numbered_adapter_without_a_name_is_named_by_its_number() -> None:
    assert events_of(as_map(lora_id=4)) == [Stored(packed(1, 2), 16, 32, lora="4")]
    assert events_of(["BlockStored", [1], None, [], 16, 4]) == [Stored(packed(1), 16, 16, lora="4")]


def test_position_seven_is_a_name_in_vllm_and_metadata_in_sglang() -> None:
    event = ["BlockStored", [-1], None, TOKENS, 16, None, "GPU"]
    assert events_of([*event, "ad"]) == [Stored(packed(-1), 16, 16, lora="ad")]
    assert events_of([*event, METADATA]) == [Stored(packed(-1), 16, 16)]


@pytest.mark.parametrize(
    ("envelope", "count"),
    [
        ([1.5, [["AllBlocksCleared"]]], 1),
        ([1.5, [["AllBlocksCleared"]], 0], 1),
        ([1.5, [["AllBlocksCleared"]], None, "more", {}], 1),
        ({"ts": 1.5, "events": [["AllBlocksCleared"], {"type": "AllBlocksCleared"}]}, 2),
        ({"data_parallel_rank": 0, "events": [["AllBlocksCleared"]], "x": 1, "ts": 1.5}, 1),
        ([1.5, [], 0], 0),
    ],
)
def test_envelopes(envelope: Any, count: int) -> None:
    assert normalise(envelope) == Batch(7, 1.5, 5.0, [Cleared()] * count, count)


def test_a_whole_number_is_a_timestamp() -> None:
    assert normalise([3, [], 0]).ts == 3.0


def test_array_and_map_events_mix_in_one_batch_with_a_bad_one_between() -> None:
    batch = normalise(
        [
            1.5,
            [
                ["BlockRemoved", [1], "GPU"],
                {"type": "BlockRemoved", "block_hashes": [2], "medium": "GPU", "group_idx": 0},
                as_map(),
                ["BlockStored", [3], None, [], -16],
                STORED[:7],
                {"type": "AllBlocksCleared"},
                ["BlockRemoved", [4]],
            ],
            0,
        ]
    )
    assert batch.events == [
        Removed(packed(1, 2)),
        Stored(packed(1, 2), 16, 32),
        Undecodable("bad_block_size", 7),
        Stored(packed(1, 2), 16, 32, packed(PARENT)),
        Cleared(),
        Removed(packed(4)),
    ]
    assert batch.engine_events == 7


def test_adjacent_removals_merge_only_within_one_medium_and_group() -> None:
    removed = [
        ["BlockRemoved", [1], "GPU", 0],
        ["BlockRemoved", [2, 2]],
        ["BlockRemoved", [], "GPU", None],
        ["BlockRemoved", [3], "GPU", 1],
        ["BlockRemoved", [b"\0" * 31 + b"\4"], "CPU", 1],
        ["BlockRemoved", [-5], "CPU", 1],
        ["BlockRemoved", [6], "cpu", 1],
        ["AllBlocksCleared"],
        ["BlockRemoved", [7], "cpu", 1],
    ]
    expected = [
        Removed(packed(1, 2, 2)),
        Removed(packed(3), group_idx=1),
        Removed(packed(4, -5), "cpu", None, 1),
        Removed(packed(6), "cpu", "cpu", 1),
        Cleared(),
        Removed(packed(7), "cpu", "cpu", 1),
    ]
    assert events_of(*removed) == expected
    names = ("type", "block_hashes", "medium", "group_idx")
    assert events_of(*(dict(zip(names, event, strict=False)) for event in removed)) == expected


def test_legal_oddities_are_no_errors() -> None:
    assert events_of(["BlockStored", [], PARENT, TOKENS, 16]) == [Stored(b"", 16, 0, packed(PARENT))]
    placeholder = ["BlockStored", [b"\1" * 32, 9], None, [], 0, None, "CPU", None, None, None, None, None]
    assert events_of(placeholder) == [Stored(b"\1" * 8 + packed(9), 0, 0, None, "cpu")]
    bigrams = ["BlockStored", [-(2**63)], -1, [[1, 2], [2, 3]], 1]
    assert events_of(bigrams) == [Stored(packed(2**63), 1, 1, packed(-1))]
    assert events_of(as_map(block_hashes=[1, -1, b"\2" * 16, 2**64 - 1])) == [
        Stored(packed(1, -1) + b"\2" * 8 + packed(-1), 16, 64)
    ]


def test_sessions_are_forwarded_only_on_demand() -> None:
    event = as_map(session_id="chat-1")
    assert events_of(event) == [Stored(packed(1, 2), 16, 32)]
    names = Pseudonyms(b"k" * 16)
    forwarding = Normaliser(max_frame_bytes=1 << 20, forwarding=Forwarding(names))
    for mixed in ([event], [event, ["AllBlocksCleared"]]):
        payload = msgspec.msgpack.encode([1.5, mixed])
        for _ in range(FIRST_LOOKS + 2):
            batch = forwarding.normalise(payload, seq=0, received_at=0.0)
            assert batch.events[0] == Stored(packed(1, 2), 16, 32, session=names.name("chat-1"))


@pytest.mark.parametrize(
    ("event", "engine", "era"),
    [
        (["BlockStored", [1], None, [], 16, None], "", "array-6"),
        (["BlockStored", [-1], None, [], 16, None], "", "array-6"),
        (["BlockStored", [2**63], None, [], 16], "tokenspeed", "tokenspeed-array-5"),
        ([*STORED[:12], 0], "atom", "array-13"),
        ([*STORED[:12], None], "atom", "array-13"),
        ([*STORED[:12], 0, "later"], "", "array-14"),
        (as_map(medium="GPU", block_hashes=[2**63], token_offset=0), "atom", "map"),
        (as_map(medium="GPU", block_hashes=[2**63]), "", "map"),
        (as_map(medium="GPU", block_hashes=[b"1" * 32]), "vllm", "map"),
        (["BlockStored", [2**63], None, [], 16, None, "GPU"], "vllm", "array-7"),
        (["BlockStored", [-1], None, [], 16, None, "GPU"], "sglang", "sglang-array-7"),
        (["BlockStored", [1], None, [], 16, None, "GPU", None], "vllm", "array-8"),
        (["BlockStored", [1], None, [], 16, None, "GPU", METADATA], "sglang", "sglang-array-8"),
        (["BlockStored", [b"1" * 32], None, [], 16, None, "GPU", None, None], "vllm", "array-9"),
        (as_map(medium="GPU", block_hashes=[5]), "", "map"),
        (as_map(medium="GPU", block_hashes=[-5]), "sglang", "sglang-map"),
        (as_map(medium="CPU_PINNED", block_hashes=[5]), "sglang", "sglang-map"),
        (as_map(medium="GPU", block_hashes=[5], group_idx=0), "vllm", "map"),
        (as_map(medium="CPU", token_ids=[]), "flexkv", "flexkv-map"),
        (as_map(medium="CPU", token_ids=[], group_idx=0), "vllm", "map"),
        (as_map(medium="CPU", token_ids=[], block_size=0), "", "map"),
        (as_map(medium="CPU", token_ids=[], parent_block_hash=7), "", "map"),
        (as_map(medium="CPU", token_ids=[5]), "", "map"),
        (as_map(medium="GPU", token_ids=[]), "", "map"),
        ({"type": "BlockRemoved", "block_hashes": [1, 2], "medium": "GPU"}, "", "map"),
        (["BlockRemoved", [1, 2]], "sglang", ""),
        (["BlockRemoved", [1, 2], "CPU"], "", ""),
    ],
)
def test_engine_and_era(event: Any, engine: str, era: str) -> None:
    normaliser = Normaliser(max_frame_bytes=1 << 20)
    normaliser.normalise(msgspec.msgpack.encode([1.0, [event], 0]), seq=0, received_at=0.0)
    assert (normaliser.era.engine, normaliser.era.wire_era) == (engine, era)


def test_an_engine_stays_what_it_is_where_flexkv_would_send_the_same() -> None:
    normaliser = Normaliser(max_frame_bytes=1 << 20)
    for event in (as_map(medium="CPU", group_idx=0), as_map(medium="CPU", token_ids=[])):
        normaliser.normalise(msgspec.msgpack.encode([1.0, [event], 0]), seq=0, received_at=0.0)
        assert normaliser.era.engine == "vllm"


@pytest.mark.parametrize("seq", [(1 << 48) - 1, 1 << 48, (1 << 63) - 1, 1 << 63, (1 << 64) - 1])
def test_a_number_of_eight_bytes_is_kept(seq: int) -> None:
    normaliser = Normaliser(max_frame_bytes=1 << 20)
    payload = msgspec.msgpack.encode([1.0, [STORED], 0])
    batches = [normaliser.normalise(payload, seq=seq, received_at=0.0) for _ in range(FIRST_LOOKS + 2)]
    assert all(batch == batches[0] for batch in batches)
    assert batches[0].seq == seq


def test_a_new_era_of_the_engine_is_noticed_and_decoded_at_once() -> None:
    normaliser = Normaliser(max_frame_bytes=1 << 20)
    old = msgspec.msgpack.encode([1.0, [STORED[:8]], 0])
    new = msgspec.msgpack.encode([1.0, [STORED], 0])
    maps = msgspec.msgpack.encode([1.0, [as_map(group_idx=3)], 0])
    for payload, era, group_idx in ((old, "array-8", 0), (new, "array-12", 3), (maps, "map", 3)):
        for _ in range(LOOK_EVERY + 1):
            (stored,) = normaliser.normalise(payload, seq=0, received_at=0.0).events
            assert isinstance(stored, Stored)
            assert stored.group_idx == group_idx
        assert normaliser.era.wire_era == era


def test_replays_are_marked() -> None:
    payload = msgspec.msgpack.encode([1.0, [], 0])
    for _ in range(3):
        batch = Normaliser(max_frame_bytes=99).normalise(payload, seq=1, received_at=2.0, replayed=True)
        assert batch == Batch(1, 1.0, 2.0, [], 0, True)
