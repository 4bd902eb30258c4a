"""Events of types that came after ours: what changes nothing is skipped, what nobody knows is named."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from connectors.engines.catalogue import CATALOGUE
from connectors.frames.bundle import Bundle
from connectors.normalise.columns import DONE, END, EVENTS, SKIPPED, START, STATUS
from connectors.normalise.normaliser import Normaliser
from connectors.normalise.scan import scan
from schemas.events import Batch, Cleared, Event, Removed, Stored, Undecodable
from tests.support.inputs.packed import packed

encode = msgspec.msgpack.encode
decode = msgspec.msgpack.Decoder(Batch).decode


def payload_of(*events: Any) -> bytes:
    return encode([1.5, events, 0])


def normalised(*events: Any) -> tuple[list[Event], int]:
    """Return the events as the reference decoder has them, and how many it skipped."""
    normaliser = Normaliser(max_frame_bytes=1 << 20)
    batch = normaliser.normalise(payload_of(*events), seq=3, received_at=2.0)
    assert batch.engine_events == len(events)
    return batch.events, normaliser.skipped


def scanned(*events: Any) -> tuple[list[Event], int] | None:
    """Return the same of the scanner; None if it gave the batch up."""
    bundle = Bundle.of([(b"", (3).to_bytes(8, "big"), payload_of(*events))])
    result = scan(bundle, 2.0, max_frame_bytes=1 << 20)
    if result.columns[STATUS, 0] != DONE:
        return None
    assert result.columns[EVENTS, 0] == len(events)
    start, end = result.columns[[START, END], 0]
    return decode(result.encoded[start:end].tobytes()).events, result.columns[SKIPPED, 0]


IDLE_ARRAY = ["BlockInactive", [1], "GPU", {"why": [1, 2]}]
IDLE_MAP = {"type": "BlockInactive", "block_hashes": [1], "medium": "GPU"}


def test_what_changes_nothing_is_counted_and_left_out_by_every_decoder() -> None:
    gone = [["BlockRemoved", [n], "GPU"] for n in range(4)]
    events = [IDLE_ARRAY, gone[0], IDLE_ARRAY, gone[1], ["AllBlocksCleared"], IDLE_ARRAY]
    expected = [Removed(packed(0, 1)), Cleared()], 3
    assert normalised(*events) == scanned(*events) == expected
    assert scanned(IDLE_MAP, IDLE_MAP) == normalised(IDLE_MAP, IDLE_MAP) == ([], 2)
    assert (
        scanned(gone[2], IDLE_MAP, gone[3])
        == normalised(gone[2], IDLE_MAP, gone[3])
        == ([Removed(packed(2, 3))], 1)
    )


@pytest.mark.parametrize(
    ("event", "medium"),
    [
        (["AllBlocksCleared", "CPU"], "cpu"),
        ({"type": "AllBlocksCleared", "medium": "CPU_PINNED"}, "cpu"),
        (["AllBlocksCleared", "NVME"], "nvme"),
        (["AllBlocksCleared", "Größe"], "grösse"),
        (["AllBlocksCleared", None], None),
        (["AllBlocksCleared", ""], None),
        ({"type": "AllBlocksCleared", "medium": None}, None),
        ({"type": "AllBlocksCleared"}, None),
        (["AllBlocksCleared", [1, 2], "CPU"], None),
        ({"type": "AllBlocksCleared", "medium": 5}, None),
        ({"type": "TierBlocksCleared", "medium": "GPU"}, "gpu"),
        (["TierBlocksCleared", "DISK"], "disk"),
    ],
)
def test_a_clear_says_which_medium_if_the_engine_does(event: Any, medium: str | None) -> None:
    expected = [Cleared(medium)], 0
    assert normalised(event) == expected
    assert scanned(event) in (None, expected)


@pytest.mark.parametrize(
    ("event", "reason"),
    [
        ({"type": "TierBlocksCleared"}, "missing_field"),
        (["TierBlocksCleared"], "truncated_tuple"),
        (["TierBlocksCleared", None], "bad_medium"),
        (["TierBlocksCleared", ""], "bad_medium"),
        (["TierBlocksCleared", 5], "bad_medium"),
        (["BlockTransferred", [1], "GPU"], "truncated_tuple"),
        (["BlockTransferred", [None], "GPU", "CPU"], "nil_hash"),
        (["BlockTransferred", [1], 7, "CPU"], "bad_medium"),
    ],
)
def test_what_is_no_such_event(event: Any, reason: Any) -> None:
    assert normalised(event) == ([Undecodable(reason, 3)], 0)
    assert scanned(event) is None


def test_blocks_that_move_leave_one_medium_and_come_to_another() -> None:
    moved = ["BlockTransferred", [7, 8], "GPU", "CPU", 1]
    events = [
        ["BlockRemoved", [6], "GPU", 1],
        moved,
        {"type": "BlockRemoved", "block_hashes": [9], "group_idx": 1},
    ]
    left = Removed(packed(6, 7, 8), group_idx=1)
    came = Stored(packed(7, 8), 0, medium="cpu", group_idx=1)
    assert normalised(*events) == ([left, came, Removed(packed(9), group_idx=1)], 0)
    assert scanned(*events) is None


@pytest.mark.parametrize(
    ("event", "name", "medium"),
    [
        ({"type": "BlockCompressed", "medium": "CPU_PINNED", "block_hashes": [1]}, "BlockCompressed", "cpu"),
        ({"type": "BlockCompressed", "medium": None}, "BlockCompressed", None),
        ({"type": "BlockCompressed", "medium": 7}, "BlockCompressed", None),
        (["BlockCompressed", [1], "CPU"], "BlockCompressed", None),
        ({"type": "what I asked, word for word", "medium": "DISK"}, None, "disk"),
        ({"type": "B" * 65}, None, None),
        (["B" * 64], "B" * 64, None),
    ],
)
def test_an_unknown_type_is_named_with_its_medium(event: Any, name: str | None, medium: str | None) -> None:
    assert normalised(event, event) == ([Undecodable("unknown_type", 3, 2, name, medium)], 0)
    assert scanned(event) is None


@pytest.mark.parametrize("counts", [[1, 0], [0], [], None, "none", {"1": [2]}])
def test_counts_of_copies_that_remain_change_nothing(counts: Any) -> None:
    # Proposed for vLLM's removals (#48933); every removal is of one physical copy, whatever it says remains.
    gone = {"type": "BlockRemoved", "block_hashes": [7, 7], "medium": "GPU", "group_idx": 0}
    said = {**gone, "remaining_copy_counts": counts}
    expected = [Removed(packed(7, 7, 7, 7))], 0
    assert normalised(said, gone) == scanned(said, gone) == expected


def test_unknown_types_are_one_notice_only_if_they_are_the_same() -> None:
    types = [("BlockA", "CPU"), ("BlockA", "CPU"), ("BlockA", "DISK"), ("BlockB", "DISK")]
    events, _ = normalised(*({"type": name, "medium": medium} for name, medium in types))
    assert events == [
        Undecodable("unknown_type", 3, 2, "BlockA", "cpu"),
        Undecodable("unknown_type", 3, 1, "BlockA", "disk"),
        Undecodable("unknown_type", 3, 1, "BlockB", "disk"),
    ]


def test_types_that_change_nothing_are_everyday() -> None:
    assert CATALOGUE.forms["BlockInactive"].everyday
    assert not CATALOGUE.forms["BlockTransferred"].everyday
    assert not CATALOGUE.forms["TierBlocksCleared"].everyday
