"""The compiled table and its loop against a dict."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from hypothesis import given
from hypothesis import strategies as st

from pipeline.reading.columns import EVENT, REMOVAL, Events
from pipeline.residency.counting.block_counting import Blocks, Where, count_copies, room_for
from pipeline.residency.counting.block_entries import BlockColumns
from pipeline.residency.counting.block_table import BlockTable, new_spread
from pipeline.residency.counting.count_copies import (
    FINISHED,
    NEEDS_ROOM,
    Rules,
    no_tally,
)
from schemas.residency import EVICTED, FILLED, GENERATED
from tests.support.suite.night import examples

# Multiples of the spread's inverse fall on neighbouring slots, those beyond the end on the first
# ones: long runs of entries that are not at their own slots.
_SPREAD = 0x9E3779B97F4A7C15
_GATHER = pow(_SPREAD, -1, 1 << 64)
crowded = st.tuples(st.sampled_from([0, 1, 7, 15]), st.integers(0, 30)).map(
    lambda place: ((place[0] << 60) + place[1]) * _GATHER % 2**64
)


def without_chains(
    hashes: npt.NDArray[np.uint64],
    copies: npt.NDArray[np.int32],
    births: npt.NDArray[np.float64],
    codes: npt.NDArray[np.uint16],
) -> BlockColumns:
    count = len(hashes)
    nothing = np.zeros(count, np.uint64)
    return BlockColumns(hashes, copies, births, codes, nothing, np.zeros(count, np.uint16), nothing)


def entries_of(table: BlockTable) -> dict[int, tuple[int, float, int]]:
    live = table.live()[["hash", "copies", "birth", "size_code"]].tolist()
    entries = {block: (copies, birth, code) for block, copies, birth, code in live}
    assert len(entries) == len(live) == table.blocks
    return entries


@examples(150)
@given(st.lists(st.dictionaries(crowded, st.integers(0, 3), max_size=30), max_size=12))
def test_entries_that_are_set_equal_a_dict(rounds: list[dict[int, int]]) -> None:
    table = BlockTable(spread=_SPREAD)
    model: dict[int, tuple[int, float, int]] = {}
    for number, wanted in enumerate(rounds):
        size = len(wanted)
        table.put(
            without_chains(
                np.array([*wanted], np.uint64),
                np.array([*wanted.values()], np.int32),
                np.full(size, float(number)),
                np.full(size, number, np.uint16),
            )
        )
        for block, copies in wanted.items():
            model[block] = (copies, float(number), number)
            if not copies:
                del model[block]
        assert entries_of(table) == model
        table.shrink_if_sparse()
        assert entries_of(table) == model
        assert all(table.entry(block)["copies"] == model.get(block, (0,))[0] for block in wanted)


@examples(300)
@given(
    st.sets(crowded, max_size=12),
    st.lists(
        st.tuples(st.lists(crowded, max_size=20), st.booleans(), st.booleans(), crowded | st.just(0)),
        max_size=30,
    ),
)
def test_counting_equals_a_dict(saved: set[int], events: list[tuple[list[int], bool, bool, int]]) -> None:
    table = BlockTable(spread=_SPREAD)
    blocks = np.array(sorted(saved), np.uint64)
    count = len(blocks)
    table.put(without_chains(blocks, np.ones(count, np.int32), np.zeros(count), np.zeros(count, np.uint16)))
    chains = dict.fromkeys(saved, (0, 0))
    filled: list[tuple[int, int, int]] = []
    model = dict.fromkeys(saved, (1, 0.0, 0))
    changes: list[tuple[int, int, float, int]] = []
    unknown = repeated = tokens = 0
    for number, (hashes, stores, may_repeat, parent) in enumerate(events, 1):
        at = float(number)
        root, before = chains.get(parent, (0, 0)) if parent else (hashes[0] if hashes else 0, 0)
        soon = parent in model and at - model[parent][1] <= 4
        kind = GENERATED if parent and soon and len(hashes) == 1 else FILLED
        if stores and may_repeat and all(block in model for block in hashes):
            repeated += len(hashes)
            continue
        for place, block in enumerate(hashes, 1):
            copies, birth, code = model.get(block, (0, at, 0))
            if stores:
                if not copies:
                    changes.append((block, kind, at, tokens))
                    chains[block] = (root, before + place if root else 0)
                    filled.append((*chains[block], number))
                model[block] = (copies + 1, birth, code)
                tokens += 16
            elif not copies:
                unknown += 1
                continue
            elif copies > 1:
                model[block] = (copies - 1, birth, code)
            else:
                changes.append((block, 1, at, tokens))
                del model[block], chains[block]

    flat = np.array([block for hashes, *_ in events for block in hashes], np.uint64)
    rows = np.zeros(len(events), EVENT)
    for number, (row, (hashes, stores, may_repeat, parent)) in enumerate(zip(rows, events, strict=True), 1):
        row["hashes"], row["block_size"] = len(hashes), 16 if stores else REMOVAL
        row["time"], row["adapter"], row["parent"] = number, number, parent
        row["may_repeat"] = stores and may_repeat
    columns = Events(rows, flat)
    found, tally = room_for(len(flat)), no_tally(1)
    progress, sizes = tally.progress, np.array([16], np.int64)
    progress["live"] = table.blocks
    while True:
        outcome = count_copies(
            Blocks(table.entries, table.contents, found),
            Where(table.spread, table.room),
            Rules(chained=True, one_copy=False, all_known=False, decodes_singly=True),
            sizes,
            columns,
            tally,
        )
        table.blocks = int(progress["live"][0])
        if outcome == FINISHED:
            break
        assert outcome == NEEDS_ROOM
        table.make_room(table.blocks + 1)
    reached = progress[0]
    assert entries_of(table) == model
    changed = found[: reached["changes"]]
    assert changed[["hash", "kind", "time", "stored"]].tolist() == changes
    assert (changed["block_size"] == 16).all()
    fills = changed[changed["kind"] != EVICTED]
    assert fills[["root", "depth", "adapter"]].tolist() == filled
    live = table.live()[["hash", "root", "depth"]].tolist()
    assert {block: (root, depth) for block, root, depth in live} == chains
    assert (reached["unknown_removed"], reached["reannounced"]) == (unknown, repeated)
    assert reached["stored_tokens"] == tokens == tally.counts[0, 0] * 16
    assert tally.counts[0, 1] - tally.counts[0, 3] == len(model) - len(saved)
    assert tally.lifetimes.sum() == tally.counts[0, 3]


def test_a_table_that_emptied_gives_its_memory_back() -> None:
    table = BlockTable(spread=new_spread())
    blocks = np.arange(100_000, dtype=np.uint64)
    one = np.ones(len(blocks), np.int32)
    table.put(without_chains(blocks, one, np.zeros(len(blocks)), np.zeros(len(blocks), np.uint16)))
    full = table.entries.nbytes
    assert full / table.blocks <= 80
    left = len(blocks) - 100
    table.put(without_chains(blocks[100:], one[100:] * 0, np.zeros(left), np.zeros(left, np.uint16)))
    table.shrink_if_sparse()
    assert table.entries.nbytes < full / 100
    assert sorted(entries_of(table)) == list(range(100))


def longest_way(table: BlockTable) -> int:
    """Return how many slots lie between an entry and the slot where the search for it begins, at most."""
    slots = len(table.entries)
    (taken,) = np.nonzero(table.entries["copies"])
    hashes = table.entries["hash"][taken].tolist()
    homes = [(((block * int(table.spread)) % 2**64 >> 32) * slots) >> 32 for block in hashes]
    return max((slot - home) % slots for slot, home in zip(taken.tolist(), homes, strict=True))


def test_hashes_chosen_to_meet_in_one_slot_meet_only_where_the_spread_is_known() -> None:
    count = 5_000
    chosen = np.array([place * _GATHER % 2**64 for place in range(1, count + 1)], np.uint64)
    columns = without_chains(chosen, np.ones(count, np.int32), np.zeros(count), np.zeros(count, np.uint16))
    ways = []
    for spread in (_SPREAD, new_spread()):
        table = BlockTable(spread=spread)
        table.put(columns)
        ways.append(longest_way(table))
    assert ways[0] > count / 2
    assert ways[1] < count / 5
