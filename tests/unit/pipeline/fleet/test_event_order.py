"""Changes come in the order, and with what belongs to each, as one goes by the rules step by step."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from pipeline.fleet.kernel.event_order import PieceOrder, in_event_order
from pipeline.fleet.kernel.packed_columns import packed_columns
from schemas.residency import CLEARED, EVICTED, FILLED, SUBSUMED, ResidencyChanges
from tests.support.suite.night import examples

WORD = 1 << 64


class Piece(NamedTuple):
    source: int
    life: int
    constant: int
    lineages: tuple[int, ...]
    part: ResidencyChanges
    changes: list[dict[str, Any]]
    """What `part` says, change by change."""


def key_of(block: int, constant: int) -> int:
    """The finaliser of SplitMix64; zero is no key."""
    key = block ^ constant
    key = (key ^ key >> 30) * 0xBF58476D1CE4E5B9 % WORD
    key = (key ^ key >> 27) * 0x94D049BB133111EB % WORD
    return key ^ key >> 31 or 1


def piece(rng: random.Random, lives: dict[int, int]) -> Piece:
    source = rng.randrange(3)
    lives[source] = lives.get(source, 1) + (rng.random() < 0.3)
    constant = rng.choice([7, 1 << 63 | 5])
    has = {name: rng.random() < 0.6 for name in ("stored", "roots", "depths", "adapters")}
    lineages = tuple(rng.randrange(1 << 16) for _ in range(3))
    before = rng.randrange(1 << 40)
    changes = []
    for _ in range(rng.randint(1, 12)):
        kind = rng.choice([FILLED, FILLED, EVICTED, CLEARED, SUBSUMED])
        fill = kind == FILLED
        changes.append(
            {
                "block": rng.choice([constant, *range(WORD - 6, WORD)]),
                "kind": kind,
                "time": rng.randrange(8) / 2,
                "size": rng.choice([16, 2**32 - 1]),
                "stored": before + rng.randrange(1 << 32) if has["stored"] else -1,
                "root": rng.randrange(WORD) if fill and has["roots"] else 0,
                "depth": rng.randrange(1 << 16) if fill and has["depths"] else 0,
                "adapter": rng.randrange(3) if fill and has["adapters"] else 0,
            }
        )
    fills = [change for change in changes if change["kind"] == FILLED]

    def packed(name: str, kind: str, of: Sequence[dict[str, Any]] = changes, *, less: int = 0) -> bytes:
        return np.array([change[name] - less for change in of], kind).tobytes()

    part = ResidencyChanges(
        "gpu",
        0,
        packed("block", ">u8"),
        packed("kind", "u1"),
        packed("time", "<f8"),
        packed("size", "<u4"),
        packed("stored", "<u4", less=before) if has["stored"] else b"",
        before,
        roots=packed("root", ">u8", fills) if has["roots"] else b"",
        depths=packed("depth", "<u2", fills) if has["depths"] else b"",
        loras=["a", "b"],
        lora_codes=packed("adapter", "<u2", fills) if has["adapters"] else b"",
    )
    return Piece(source, lives[source], constant, lineages, part, changes)


def expected(pieces: Sequence[Piece], one_in: int) -> list[tuple[Any, ...]]:
    reached: dict[tuple[int, int], float] = {}
    """(source, life) to the latest time as which one of its changes counts."""
    found: list[tuple[float, int, tuple[Any, ...]]] = []
    gone = set()
    for number, each in enumerate(pieces):
        earlier = (at for (source, life), at in reached.items() if source == each.source and life < each.life)
        due = max(earlier, default=-1.0)
        filled: dict[int, int] = {}
        for change in each.changes:
            key = key_of(change["block"], each.constant)
            if key % (1 << 24) % one_in:
                continue
            due = max(due, change["time"])
            reached[each.source, each.life] = max(reached.get((each.source, each.life), due), due)
            lineage = each.lineages[change["adapter"]]
            place = len(found)
            if change["kind"] == FILLED:
                filled[key] = place
            elif change["kind"] == SUBSUMED and key in filled:
                gone |= {place, filled.pop(key)}
            facts = [change[name] for name in ("kind", "time", "size", "stored")]
            found.append((due, place, (key, *facts, number, change["root"], change["depth"], lineage)))
    return [facts for _, place, facts in sorted(found) if place not in gone]


@examples(500)
@given(st.integers(0, 1 << 30), st.integers(1, 6), st.sampled_from([1, 1, 2, 3]))
def test_changes_come_in_the_order_in_which_they_count(seed: int, count: int, one_in: int) -> None:
    rng = random.Random(seed)
    lives: dict[int, int] = {}
    pieces = [piece(rng, lives) for _ in range(count)]
    order = PieceOrder(
        np.array([each.source for each in pieces]),
        np.array([each.life for each in pieces]),
        np.array([each.constant for each in pieces], np.uint64),
        np.array([lineage for each in pieces for lineage in each.lineages], np.uint16),
        np.arange(count) * 3,
    )
    changes = in_event_order(packed_columns([each.part for each in pieces]), order, one_in)
    columns = (column.tolist() for column in changes)
    assert list(zip(*columns, strict=True)) == expected(pieces, one_in)
