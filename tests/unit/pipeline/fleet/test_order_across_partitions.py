"""Changes count in event time whichever partition they come from, in whatever order partitions are read."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from pipeline.fleet.state import FleetState
from schemas.fleet_rows import FillsRow
from schemas.residency import ResidencyRecord
from schemas.settings import Fleet
from tests.support.fleet_recount import agree, compared, resident_tokens, rows_of
from tests.support.inputs.fleet_walks import partitioned, walked, walks
from tests.support.inputs.residency_records import changes, said
from tests.support.suite.night import examples

START = 1_000.0


@examples(200)
@given(
    walks,
    st.integers(1, 3),
    st.integers(0, 1 << 30),
    st.sampled_from([3600.0, 12.0]),
    st.sampled_from([2_000_000, 7, 1]),
    st.integers(1, 9),
    st.lists(st.integers(0, 60), max_size=3),
    st.sampled_from([0, 2]),
    st.booleans(),
)
def test_rows_are_those_of_the_recount(
    walk: Any,
    partitions: int,
    seed: int,
    horizon: float,
    waiting: int,
    every: int,
    killed: list[int],
    compare_after: int,
    undecided: bool,
) -> None:
    end = walked(walk)
    records = partitioned(end.records, partitions, seed, undecided=undecided)
    fleet = Fleet(horizon_seconds=horizon, max_waiting=waiting, compare_after=compare_after)
    rows = rows_of(records, fleet, every=every, killed=tuple(killed), forget=1000.0)
    findings = compared(records, rows, fleet, forget=1000.0)
    agree(findings, rows)
    assert resident_tokens(rows) == end.physical_tokens()


steady = walks.map(
    lambda walk: [
        (source, what, block, pool, abs(seconds))
        for source, what, block, pool, seconds in walk
        if what not in ("trust", "ahead")
    ]
)


@examples(200)
@given(steady, st.integers(2, 3), st.integers(0, 1 << 30))
def test_causes_do_not_depend_on_which_partition_is_read_first(walk: Any, partitions: int, seed: int) -> None:
    records = walked(walk).records
    fleet = Fleet(compare_after=0)
    found = []
    for order in (seed, seed + 1):
        rows = rows_of(partitioned(records, partitions, order), fleet, every=4)
        fills = [row for row in rows if isinstance(row, FillsRow)]
        found.append(sorted(repr(_without_version(row)) for row in fills))
    assert found[0] == found[1]


def _without_version(row: FillsRow) -> dict[str, Any]:
    return {name: getattr(row, name) for name in FillsRow.__struct_fields__ if name != "version"}


def record(
    partition: int, read_to: float, fills: dict[str, float], offset: float = 0.0, blocks: int = 1
) -> ResidencyRecord:
    """A record of two partitions in which sources fill the same blocks, at a time each."""
    sources = [said(name, changes(dict.fromkeys(range(1, blocks + 1), at))) for name, at in fills.items()]
    return ResidencyRecord(partition, 0, 0, sources, 2, read_to, offset if fills else None)


def causes(state: FleetState) -> dict[str, tuple[int, int]]:
    """Return cold and peer blocks of each replica."""
    return {
        row.replica: (row.cold_blocks, row.peer_blocks)
        for row in state.cut(0.0).rows
        if isinstance(row, FillsRow)
    }


def test_the_first_by_event_time_is_the_first_though_its_partition_is_read_later() -> None:
    state = FleetState(0, Fleet(), carry_seconds=0.0)
    state.apply(0, record(0, START + 60.0, {"decode": START + 0.1, "other": START + 59.0}))
    assert causes(state) == {}, "of the other partition nothing is known"
    state.apply(1, record(1, START + 1.9, {"prefill": START}))
    assert causes(state) == {}, "as much may come later as clocks differ"
    state.apply(2, record(1, START + 2.1, {}))
    assert causes(state) == {"prefill": (1, 0), "decode": (0, 1)}
    assert not state.take_out_of_order()


def test_an_idle_partition_does_not_hold_the_others() -> None:
    state = FleetState(0, Fleet(), carry_seconds=0.0)
    state.apply(0, record(1, START, {}))
    state.apply(1, record(0, START, {"one": START - 0.5}))
    for second in range(1, 4):
        state.apply(2 * second, record(0, START + second, {}))
        state.apply(2 * second + 1, record(1, START + second - 1, {}))
        assert causes(state) == ({"one": (1, 0)} if second == 3 else {})


def test_engines_of_an_earlier_hour_count_in_their_own_time() -> None:
    state = FleetState(0, Fleet(), carry_seconds=0.0)
    state.apply(0, record(0, START + 3600.2, {"decode": START + 0.1}, offset=-3600.0))
    state.apply(1, record(1, START + 3601.0, {"prefill": START}, offset=-3600.5))
    state.apply(2, record(0, START + 3604.0, {"decode": START + 4.0}, offset=-3600.0))
    assert causes(state) == {}
    state.apply(3, record(1, START + 3604.0, {}))
    assert causes(state) == {"prefill": (1, 0), "decode": (0, 1)}


def test_a_copy_that_arrived_by_transfer_counts_behind_what_it_is_a_copy_of() -> None:
    """Though the receiver's clock is a second behind."""
    state = FleetState(0, Fleet(), carry_seconds=0.0)
    received = record(0, START + 60.0, {"decode": START - 0.9})
    received.sources[0].receives = True
    state.apply(0, received)
    state.apply(1, record(1, START + 2.0, {"prefill": START}))
    assert causes(state) == {"prefill": (1, 0)}
    state.apply(2, record(1, START + 3.0, {}))
    assert causes(state) == {}
    state.apply(3, record(1, START + 3.2, {}))
    [row] = [row for row in state.cut(0.0).rows if isinstance(row, FillsRow)]
    assert (row.replica, row.transferred_blocks, row.filled_blocks) == ("decode", 1, 1)
    assert not state.take_out_of_order()


def test_what_comes_late_counts_at_once_and_is_counted() -> None:
    state = FleetState(0, Fleet(), carry_seconds=0.0)
    state.apply(0, record(1, START + 10.0, {}))
    state.apply(1, record(0, START + 10.0, {"one": START, "two": START + 10.0}))
    assert causes(state) == {"one": (1, 0)}
    state.apply(2, record(1, START + 11.0, {"late": START - 1.0}))
    assert causes(state) == {"late": (0, 1)}
    assert state.take_out_of_order() == {"late": 1}
    assert not state.take_out_of_order()


def test_no_more_waits_than_may() -> None:
    state = FleetState(0, Fleet(max_waiting=5), carry_seconds=0.0)
    state.apply(0, record(0, START + 10.0, {"one": START}, blocks=4))
    assert causes(state) == {}
    state.apply(1, record(0, START + 10.0, {"two": START + 1.0}, blocks=2))
    assert causes(state) == {"one": (4, 0)}
    assert state.take_out_of_order() == {"too_many_wait": 4}
