"""What the scanner has no room for, or does not read, is given up whole, and decoded event by event."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from connectors.normalise.columns import DONE, GAVE_UP, STATUS
from connectors.normalise.links import Linker
from connectors.normalise.normaliser import Normaliser
from schemas.events import Batch, Removed, Stored
from tests.support.decoders import MAX_FRAME_BYTES, Decoders
from tests.support.inputs.packed import packed

encode = msgspec.msgpack.encode


def stored(number: int, tokens: list[int] | None = None, size: int = 1) -> list[Any]:
    return ["BlockStored", [number], None, tokens or [], size, None, "GPU"]


def removed(numbers: range, medium: str = "GPU") -> list[Any]:
    return ["BlockRemoved", list(numbers), medium]


def given_up(payload: bytes, linker: Linker | None = None) -> Batch:
    """Check that the scanner leaves a payload alone; return what event by event is made of it."""
    found = Decoders(linker=linker).scan(payload)
    assert found.columns[STATUS].tolist() == [GAVE_UP]
    assert not found.encoded.size
    return Normaliser(max_frame_bytes=MAX_FRAME_BYTES).normalise(payload, seq=0, received_at=1.0)


@pytest.mark.parametrize("behind", [[], [stored(1)]], ids=["last", "in-between"])
def test_removals_that_are_too_many_for_one_run(behind: list[Any]) -> None:
    events = [removed(range(at, at + 3000)) for at in (0, 3000, 6000)]
    batch = given_up(encode([1.5, [*events, *behind], 0]))
    (run, *_) = batch.events
    assert isinstance(run, Removed)
    assert len(run.hashes) == 8 * 9000


@pytest.mark.parametrize("blocks", range(2, 7))
@pytest.mark.parametrize("linked", [False, True])
def test_stores_that_take_more_room_than_they_came_in(blocks: int, linked: bool) -> None:
    """Short hashes take eight bytes each in a record, so room ends somewhere in a store."""
    count = 3_000 if linked else 3_800
    tokens = [7] * blocks if linked else []
    rest = [None, "GPU", None, None] if linked else []
    stored = ["BlockStored", [*range(blocks)], None, tokens, 1, *rest]
    events = [stored] * count
    batch = given_up(encode([1.5, events, 0]), Linker(b"") if linked else None)
    assert batch.engine_events == count
    hashes = packed(*range(blocks))
    assert [event.hashes for event in batch.events if isinstance(event, Stored)] == [hashes] * count


def test_a_link_that_no_room_is_left_for() -> None:
    """The nearer to the end of what is there, the sooner a store is given up; before, it is right."""
    linker = Linker(b"")
    last = ["BlockStored", [1], None, [7] * 400, 400, None, "GPU", None, None]
    seen = []
    for count in range(9_600, 11_400, 60):
        # Of two media in turn, or they were one run, which is too long.
        parts = [removed(range(0), "GPU")] + [
            ["BlockRemoved", [1] * min(2_000, count - at), "CPU" if at % 4_000 else "GPU"]
            for at in range(0, count, 2_000)
        ]
        payload = encode([1.5, [*parts, last], 0])
        found = Decoders(linker=linker).scan(payload)
        seen.append(int(found.columns[STATUS, 0]))
        if seen[-1] == DONE:
            batch = msgspec.msgpack.decode(found.encoded.tobytes(), type=Batch)
            assert batch == Decoders(linker=linker).by_event(payload)
    assert seen == sorted(seen, reverse=DONE > GAVE_UP)
    assert {DONE, GAVE_UP} == {*seen}


@pytest.mark.parametrize("key", ["ts", "events"])
def test_an_envelope_that_has_a_key_twice(key: str) -> None:
    def entry(name: str) -> bytes:
        return encode(name) + encode(1.5 if name == "ts" else [stored(1)])

    payload = b"\x83" + entry("ts") + entry("events") + entry(key)
    batch = given_up(payload)
    assert batch.seq == 0
