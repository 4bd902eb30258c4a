"""Media that are not the engine's own: whose they are, and what a clear of them is of."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from connectors.normalise.normaliser import Normaliser
from schemas.events import Cleared, Event, Removed, Stored
from tests.support.decoders import Decoders
from tests.support.inputs.packed import packed

ONE = packed(1)


def stored(medium: str | None, **said: Any) -> dict[str, Any]:
    return {
        "type": "BlockStored",
        "block_hashes": [1],
        "parent_block_hash": None,
        "token_ids": [],
        "block_size": 16,
        "lora_id": None,
        "medium": medium,
        "lora_name": None,
        **said,
    }


def removed(medium: str | None, **said: Any) -> dict[str, Any]:
    return {"type": "BlockRemoved", "block_hashes": [1], "medium": medium, **said}


def decoded(*events: Any) -> tuple[list[Event], bool]:
    """Return what a payload says, and whether the quick ways understood it, which then say the same."""
    decoders = Decoders()
    (scanned,) = decoders.scanned(msgspec.msgpack.encode([1.5, events, 0]))
    return decoders.agreed(*events), scanned is not None


@pytest.mark.parametrize(
    ("medium", "said", "name", "store_only", "quick"),
    [
        ("STORAGE", {}, "storage", True, True),
        ("STORAGE", {"locality": None, "ownership": None}, "storage", True, None),
        ("STORAGE", {"locality": "LOCAL"}, "storage", True, True),
        ("STORAGE", {"locality": "REMOTE"}, "remote:storage", True, False),
        ("CPU", {"ownership": "kvcr"}, "kvcr:cpu", False, False),
        ("STORAGE", {"ownership": "KVCR", "locality": "LOCAL"}, "kvcr:storage", False, False),
        ("STORAGE", {"ownership": "kvcr", "locality": "REMOTE"}, "kvcr:storage", False, False),
        ("SSD", {"ownership": "x" * 1000}, "x" * 64 + ":ssd", False, False),
    ],
)
def test_whose_a_medium_is(
    medium: str, said: dict[str, Any], name: str, store_only: bool, quick: bool | None
) -> None:
    events, done = decoded(stored(medium, **said), removed(medium, **said))
    store, removal = events
    assert isinstance(store, Stored)
    assert isinstance(removal, Removed)
    assert (store.medium, removal.medium) == (name, name)
    assert (store.store_only, store.hashes, removal.hashes) == (store_only, ONE, ONE)
    assert quick in (None, done)


def test_removals_of_two_owners_are_apart() -> None:
    events, _ = decoded(removed("CPU"), removed("CPU", ownership="kvcr"), removed("CPU", ownership="kvcr"))
    assert events == [Removed(ONE, "cpu"), Removed(ONE * 2, "kvcr:cpu", "CPU")]


@pytest.mark.parametrize(
    ("event", "of"),
    [
        ({"type": "AllBlocksCleared"}, None),
        ({"type": "AllBlocksCleared", "ownership": None}, None),
        ({"type": "AllBlocksCleared", "ownership": "kvcr"}, "kvcr:"),
        ({"type": "AllBlocksCleared", "ownership": "kvcr", "medium": "CPU"}, "kvcr:cpu"),
        ({"type": "AllBlocksCleared", "locality": "REMOTE"}, "remote:"),
        ({"type": "TierBlocksCleared", "medium": "STORAGE"}, "storage"),
        ({"type": "TierBlocksCleared", "medium": "STORAGE", "ownership": "kvcr"}, "kvcr:storage"),
    ],
)
def test_what_a_clear_is_of(event: dict[str, Any], of: str | None) -> None:
    assert decoded(event)[0] == [Cleared(of)]


@pytest.mark.parametrize("bad", [7, b"kvcr", "x" * 2000])
def test_an_owner_that_is_no_name_costs_its_event(bad: Any) -> None:
    events, _ = decoded(stored("CPU", ownership=bad), stored("CPU"))
    assert [type(event).__name__ for event in events] == ["Undecodable", "Stored"]


def test_only_atom_is_store_only_where_others_have_the_same_medium() -> None:
    flexkv = stored("REMOTE")
    events, done = decoded(flexkv, removed("REMOTE"))
    assert isinstance(events[0], Stored)
    assert (events[0].medium, events[0].store_only, done) == ("remote", False, False)
    decoder = Normaliser(max_frame_bytes=1 << 20)
    decoder.normalise(msgspec.msgpack.encode([1.5, [flexkv], 0]), seq=0, received_at=5.0)
    assert (decoder.era.engine, decoder.era.one_copy) == ("flexkv", True)
    atom = ["BlockStored", [1], None, [], 16, None, "REMOTE", None, None, None, None, None, 0]
    (store,) = decoder.normalise(msgspec.msgpack.encode([1.5, [atom], 0]), seq=1, received_at=5.0).events
    assert isinstance(store, Stored)
    assert (decoder.era.engine, decoder.era.one_copy, store.store_only) == ("atom", True, True)
