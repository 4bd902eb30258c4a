"""Tables of a shard grow, and what has a bound keeps to it."""

from __future__ import annotations

from collections import Counter

import msgspec
import numpy as np
import pytest

from pipeline.errors import TooManySources
from pipeline.fleet import index, registry
from pipeline.fleet.kernel.refills import FORGOTTEN, USED, make_room, refills_of
from pipeline.fleet.kernel.refills import REFILL as ROW
from pipeline.fleet.kernel.tables import BLOCK
from pipeline.fleet.prefixes.shared import SHARED, _sum_of, shared_prefixes
from pipeline.fleet.state import FleetState
from pipeline.kafka.refusal import RecordRefused, SourceName
from schemas.fleet_rows import FillsRow, HotPrefixRow, RedundancyRow
from schemas.residency import EVICTED, FILLED, ResidencyRecord
from schemas.setting_rows import HashGroupRow
from schemas.settings import Fleet
from tests.support.fleet_recount import agree, compared, rows_of
from tests.support.inputs.residency_records import record

START = 1_800_000_000.0


def state_of(*records: ResidencyRecord, **fleet: float) -> FleetState:
    state = FleetState(0, Fleet(**fleet), carry_seconds=60.0)  # type: ignore[arg-type]
    for offset, each in enumerate(records):
        assert state.refusal(each) is None
        state.apply(offset, each)
    return state


def test_more_sources_and_groups_than_the_first_tables_have_room_for() -> None:
    sources, groups = 70, range(1, 41)
    records = [
        record(source, FILLED, range(source * 10 + 1, source * 10 + 4), START) for source in range(sources)
    ]
    for group in groups:
        filled = record(0, FILLED, range(5000, 5002), START)
        filled.sources[0].changes[0].group_idx = group
        records.append(filled)
    rows = state_of(*records).cut(START + 60).rows
    filled_blocks = {
        (row.replica, row.group_idx): row.filled_blocks for row in rows if isinstance(row, FillsRow)
    }
    assert filled_blocks == {(f"r{source}", 0): 3 for source in range(sources)} | {
        ("r0", group): 2 for group in groups
    }
    held = {row.group_idx: row.owners_1 for row in rows if isinstance(row, RedundancyRow)}
    assert held == {0: 3 * sources} | dict.fromkeys(groups, 2)


def test_blocks_and_pairs_get_room_before_all_rows_are_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(index, "LARGE", 1 << 40)
    filled = record(0, FILLED, range(1, 701), START)
    state, other = state_of(filled), state_of(filled)
    capacities = len(state.index.blocks), len(state.index.pairs)
    monkeypatch.setattr(index, "LARGE", 512)
    state.index.grow_early(max_losses=10_000)
    assert (len(state.index.blocks), len(state.index.pairs)) == tuple(2 * each for each in capacities)
    monkeypatch.setattr(index, "LARGE", 1 << 40)
    for each in (state, other):
        each.apply(1, record(0, EVICTED, range(1, 701), START + 1))
    assert [repr(row) for row in state.cut(START + 3).rows] == [
        repr(row) for row in other.cut(START + 3).rows
    ]


def test_a_record_without_changes_changes_nothing() -> None:
    filled = record(0, FILLED, range(1, 4), START)
    empty = record(0, FILLED, range(1, 2), START)
    empty.sources[0].changes.clear()
    state, other = state_of(filled, empty), state_of(filled)
    assert state.next_offset == 2
    rows, others = (
        [msgspec.structs.replace(row, version=0) for row in each.cut(START + 3).rows]
        for each in (state, other)
    )
    assert rows == others


def test_no_prefix_is_listed_where_none_is_asked_for() -> None:
    def listed(hot_prefixes: int) -> int:
        records = [record(source, FILLED, range(1, 4), START) for source in range(3)]
        records.append(record(3, FILLED, range(9, 10), START + 30))
        rows = state_of(*records, hot_prefixes=hot_prefixes).cut(START + 60).rows
        return sum(isinstance(row, HotPrefixRow) for row in rows)

    assert listed(0) == 0
    assert listed(1) > 0


def test_a_source_too_many_is_refused_and_a_chain_too_many_shares_the_last_name(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(registry, "MAX_SOURCES", 2)
    names = state_of(record(0, FILLED, range(1, 2), START), record(1, FILLED, range(1, 2), START)).names
    with pytest.raises(TooManySources):
        names.sources.of("r2", 0)
    monkeypatch.setattr(registry, "MAX_LINEAGES", 3)
    space = names.spaces.of("d", "m", 0)
    lineages = [names.lineages.of(space, f"adapter{number}") for number in range(4)]
    assert lineages[2] is lineages[3]
    assert len(names.lineages.by_number) == 3


@pytest.mark.parametrize("removed", [False, True], ids=["set aside", "removed by retention"])
def test_after_lost_records_causes_are_unknown_for_a_horizon(removed: bool) -> None:
    """However long the source was silent before: what is lost may have come shortly before the present."""
    hours = 3600.0
    state = state_of(record(0, FILLED, range(1, 4), START))
    if removed:
        state.skip_removed(100)
        kept = dict([*state.cut(START).checkpoints, *state.cut(START + hours).checkpoints])
        state = FleetState(0, Fleet(), carry_seconds=60.0, latest=kept)
    state.apply(100, record(1, FILLED, range(10, 13), START + 30 * hours))
    if not removed:
        state.set_aside(101, RecordRefused("uneven_columns", "", (SourceName("r0", 0),)))
    state.apply(102, record(0, FILLED, range(20, 23), START + 30.5 * hours))
    state.apply(103, record(0, FILLED, range(30, 33), START + 31.1 * hours))
    rows = [row for row in state.cut(START + 32 * hours).rows if isinstance(row, FillsRow)]
    found = [(row.unknown_blocks, row.cold_blocks) for row in rows if row.replica == "r0"]
    assert found[-2:] == [(3, 0), (0, 3)]


def test_what_waited_when_records_were_removed_does_not_date_them() -> None:
    later = START + 30 * 3600.0

    def heard(of: ResidencyRecord, read_to: float) -> ResidencyRecord:
        return msgspec.structs.replace(of, partitions=1, read_to=read_to, clock_offset=0.0)

    state = FleetState(0, Fleet(), carry_seconds=60.0)
    state.apply(0, heard(record(0, FILLED, range(1, 4), START), START))
    state.skip_removed(100)
    state.apply(100, heard(record(0, FILLED, range(10, 13), later), later))
    state.apply(101, heard(record(0, FILLED, range(20, 23), later + 60.0), later + 90.0))
    rows = [row for row in state.cut(later + 90.0).rows if isinstance(row, FillsRow)]
    assert [(row.unknown_blocks, row.cold_blocks) for row in rows][-2:] == [(3, 0), (3, 0)]


@pytest.mark.parametrize("removed", [False, True], ids=["set aside", "removed by retention"])
def test_no_record_of_an_incomplete_source_ends_what_lost_records_made_unknown(removed: bool) -> None:
    """It may say nothing, or something older than what was lost."""
    later = START + 30 * 3600.0
    partial = record(0, FILLED, range(1, 4), START)
    partial.sources[0].trust = "partial"
    state = state_of(partial)
    if removed:
        state.skip_removed(100)
    said = msgspec.structs.replace(partial, sources=[msgspec.structs.replace(partial.sources[0], changes=[])])
    state.apply(100, said)
    state.apply(101, record(1, FILLED, range(10, 13), later))
    if not removed:
        state.set_aside(102, RecordRefused("uneven_columns", "", (SourceName("r0", 0),)))
    state.apply(103, said)
    state.apply(104, record(0, FILLED, range(20, 23), later + 60.0))
    rows = [row for row in state.cut(later + 90.0).rows if isinstance(row, FillsRow) and row.replica == "r0"]
    assert [(row.unknown_blocks, row.cold_blocks) for row in rows][-1] == (3, 0)


@pytest.mark.parametrize(("store_only", "last"), [(False, "m6"), (True, "m5")])
def test_media_beyond_those_that_are_told_apart_count_as_the_last_of_them(
    store_only: bool, last: str
) -> None:
    """A block that is on two of them counts once, and leaves once; a state is loaded in between."""
    media = [f"m{number}" for number in range(10)]
    changed = [(0, FILLED, each) for each in media] + [(1, FILLED, "m9"), (1, FILLED, "m8")]
    changed += [(0, EVICTED, "m9"), (0, EVICTED, "m8"), (1, EVICTED, "m8"), (1, EVICTED, "m9")]
    records = []
    for number, (source, kind, medium) in enumerate(changed):
        records.append(record(source, kind, range(1, 4), START + 10 * number, medium=medium))
        records[-1].sources[0].changes[0].store_only = store_only
    rows = rows_of(records, Fleet(), killed=(13, 15))
    agree(compared(records, rows, Fleet()), rows)
    owners = {(row.medium, row.window.timestamp()): row for row in rows if isinstance(row, RedundancyRow)}
    assert {medium for medium, _ in owners} == {*media[: media.index(last) + 1]}
    assert owners[last, START + 110].owners_2 == 3
    assert owners[last, START + 120].owners_1 == 3
    assert owners[last, START + 150].physical_tokens == 0


def test_names_of_lives_that_are_over_are_forgotten() -> None:
    """A source that starts again and again takes a name each time; only those in use are kept."""
    state = state_of(record(1, FILLED, range(9, 12), START))
    lives = 3_000
    for life in range(1, lives):
        filled = record(0, FILLED, range(1, 4), START + life / 100)
        filled.sources[0].incarnation = life
        state.apply(life, filled)
    assert len(state.head.labels) < 1_500
    groups = {row.replica: row for row in state.cut(START + 60).rows if isinstance(row, HashGroupRow)}
    assert groups["r0"].hash_group.startswith("r0/0@")
    assert groups["r1"].hash_group == "r1/0@1"


def test_half_of_the_counters_of_refills_are_freed_by_taking_off_their_median() -> None:
    tokens = {root: root % 50 + 1 for root in range(1, 100)}
    live = np.zeros(len(tokens), ROW)
    live["root"], live["tokens"] = list(tokens), list(tokens.values())
    room = make_room(refills_of(live, 7))
    median = sorted(tokens.values())[len(tokens) // 2]
    kept = room.rows[room.rows["root"] != 0]
    assert dict(zip(kept["root"].tolist(), kept["tokens"].tolist(), strict=True)) == {
        root: count - median for root, count in tokens.items() if count > median
    }
    assert room.totals.tolist() == [len(kept), 7 + median]
    assert (USED, FORGOTTEN) == (0, 1)


def test_a_prefix_that_falls_under_the_sum_of_an_asked_one_is_not_taken_for_it() -> None:
    sums = 16
    under: Counter[int] = Counter()
    roots: dict[int, int] = {}
    for root in range(1, 1000):
        number = _sum_of(np.uint64(root), 0, sums)
        under[number] += 1
        if number in roots:
            break
        roots[number] = root
    asked_root, other = roots[number], root
    blocks = np.zeros(16, BLOCK)
    blocks["key"][:3], blocks["size"], blocks["depth"] = (1, 2, 3), 16, 1
    blocks["root"][:3] = asked_root, other, next(each for each in roots.values() if each != asked_root)
    # The third prefix has the one sum that is large.
    blocks["owners"][:3] = 2, 2, 100
    asked = np.zeros(1, SHARED)
    asked["root"] = asked_root
    found, _ = shared_prefixes(blocks, asked, sums=sums, largest=1, prefixes=8)
    assert other not in found["root"].tolist()
    assert {asked_root: 16}.items() <= dict(
        zip(found["root"].tolist(), found["duplicated"].tolist(), strict=True)
    ).items()
