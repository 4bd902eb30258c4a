"""Changes come in the order, and with what belongs to each, as one goes by the rules step by step."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from pipeline.fleet.hashing.comparison import PieceOrigins
from pipeline.fleet.kernel.columns import Pieces
from pipeline.fleet.kernel.event_order import PieceOrder
from pipeline.fleet.kernel.packed_columns import packed_columns
from pipeline.fleet.pieces import RecordPieces, salt_of_runs
from pipeline.fleet.registry import Sources
from pipeline.fleet.waiting import WaitingChanges
from pipeline.verify.fleet.transfers import run_of
from schemas.fleet_checkpoints import FleetSource
from schemas.residency import CLEARED, EVICTED, FILLED, FILLS, GENERATED, RETURNED, SUBSUMED, ResidencyChanges
from tests.support.suite.night import examples

WORD = 1 << 64


class Piece(NamedTuple):
    source: int
    life: int
    group: int
    constant: int
    lineages: tuple[int, ...]
    later: float
    """Seconds."""
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
    group, constant = rng.choice([(0, 7), (1, 1 << 63 | 5)])
    has = {name: rng.random() < 0.6 for name in ("stored", "roots", "depths", "adapters", "ends")}
    lineages = tuple(rng.randrange(1 << 16) for _ in range(3))
    before = rng.randrange(1 << 40)
    changes = []
    for _ in range(rng.randint(1, 12)):
        kind = rng.choice([FILLED, FILLED, GENERATED, RETURNED, EVICTED, CLEARED, SUBSUMED])
        fill = kind in FILLS
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
                "end": rng.choice([0, WORD - 1, 7]) if fill and has["ends"] else 0,
            }
        )
    fills = [change for change in changes if change["kind"] in FILLS]

    def packed(name: str, kind: str, of: Sequence[dict[str, Any]] = changes, *, less: int = 0) -> bytes:
        return np.array([change[name] - less for change in of], kind).tobytes()

    part = ResidencyChanges(
        "gpu",
        group,
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
        ends=packed("end", ">u8", fills) if has["ends"] else b"",
    )
    later = rng.choice([0.0, 0.0, 1.5])
    return Piece(source, lives[source], group, constant, lineages, later, part, changes)


def expected(records: Sequence[Sequence[Piece]], one_in: int) -> list[tuple[float, tuple[Any, ...]]]:
    """Return when each change counts, and what is told of it, in the order in which they count."""
    reached: dict[tuple[int, int, int], float] = {}
    """(source, record, life) to the latest time as which one of its changes counts."""
    found: list[tuple[float, str, int, tuple[Any, ...]]] = []
    gone = set()
    place = 0
    for record, pieces in enumerate(records):
        for number, each in enumerate(pieces):
            this = (each.source, record, each.life)
            earlier = [at for of, at in reached.items() if of[0] == each.source and of < this]
            due = max(earlier, default=0.0)
            filled: dict[int, int] = {}
            for change in each.changes:
                key = key_of(change["block"], each.constant)
                if key % (1 << 24) % one_in:
                    continue
                due = max(due, change["time"] + each.later)
                reached[this] = max(reached.get(this, due), due)
                lineage = each.lineages[change["adapter"]]
                place += 1
                if change["kind"] in FILLS:
                    filled[key] = place
                elif change["kind"] == SUBSUMED and key in filled:
                    gone |= {place, filled.pop(key)}
                facts = [change[name] for name in ("kind", "time", "size", "stored")]
                run = 0
                if change["end"] and one_in == 1:
                    run = run_of(
                        change["end"], change["time"], (NAMES[each.source], 0), each.life, each.group
                    )
                    run += change["end"] == change["block"]
                told = (key, *facts, (record, number), change["root"], change["depth"], lineage, run)
                found.append((due, NAMES[each.source], place, told))
    return [(due, told) for due, _, place, told in sorted(found) if place not in gone]


def record_of(pieces: Sequence[Piece], number: int) -> RecordPieces:
    """Return the pieces of a record as the agent reads them; `versions` say which they are."""
    count = len(pieces)
    sources = np.array([each.source for each in pieces])
    which = np.array([number << 32 | at for at in range(count)], np.uint64)
    order = PieceOrder(
        sources,
        np.array([each.life for each in pieces]),
        np.array([each.constant for each in pieces], np.uint64),
        np.array([lineage for each in pieces for lineage in each.lineages], np.uint16),
        np.arange(count) * 3,
        np.array([each.later for each in pieces]),
        np.array([salt_of_runs(NAMES[each.source], 0, each.life, each.group) for each in pieces], np.uint64),
    )
    followed = Pieces(*(np.zeros(count) for _ in Pieces._fields))._replace(medium_keys=which)
    origins = PieceOrigins(sources, np.zeros(count, np.uint32), np.zeros(count, np.uint64))
    return RecordPieces(packed_columns([each.part for each in pieces]), order, followed, origins)


def taken(waiting: WaitingChanges, until: float) -> list[tuple[Any, ...]]:
    due = waiting.take(until)
    if due is None:
        return []
    which = [(int(number) >> 32, int(number) & 0xFFFF) for number in due.pieces.medium_keys]
    columns = [column.tolist() for column in due.changes]
    return [(*facts[:5], which[facts[5]], *facts[6:]) for facts in zip(*columns, strict=True)]


def known_sources() -> Sources:
    return Sources([FleetSource(number, name, 0) for number, name in enumerate(NAMES)])


NAMES = ["b", "c", "a"]


@examples(500)
@given(
    st.integers(0, 1 << 30),
    st.lists(st.integers(1, 4), min_size=1, max_size=6),
    st.sampled_from([1, 1, 2, 3]),
    st.lists(st.tuples(st.integers(0, 12), st.booleans()), max_size=6),
)
def test_changes_come_in_the_order_in_which_they_count(
    seed: int, counts: list[int], one_in: int, reads: list[tuple[int, bool]]
) -> None:
    """Whatever is taken between two records, and if what waits went through a base."""
    rng = random.Random(seed)
    lives: dict[int, int] = {}
    records = [[piece(rng, lives) for _ in range(count)] for count in counts]
    sources = known_sources()
    waiting = WaitingChanges({}, sources)
    found: list[tuple[Any, ...]] = []
    wanted: list[tuple[Any, ...]] = []
    left: list[tuple[float, tuple[Any, ...]]] = []
    for number, pieces in enumerate(records):
        came, late = waiting.add(record_of(pieces, number), named=True, one_in=one_in, counted_to=3.0)
        new = [each for each in expected(records[: number + 1], one_in) if each[1][5][0] == number]
        left = [each for each in expected(records[: number + 1], one_in) if each in [*left, *new]]
        assert (came, waiting.count) == (len(new), len(left))
        assert late >= sum(due < 3.0 for due, _ in new)
        if number < len(reads):
            half_seconds, restored = reads[number]
            until = half_seconds / 2
            found += taken(waiting, until)
            wanted += [told for due, told in left if due <= until]
            left = [each for each in left if each[0] > until]
            if restored:
                packed = {name: [c.tobytes() for c in table] for name, table in waiting.copied().items()}
                waiting = WaitingChanges(packed, sources)
    assert found + taken(waiting, np.inf) == wanted + [told for _, told in left]
    assert waiting.count == 0
