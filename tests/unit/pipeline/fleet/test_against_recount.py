"""Causes, regret, redundancy and curve are those of the recount on random walks, however the log is cut."""

from __future__ import annotations

import struct
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.kafka.refusal import RecordRefused, SourceName
from pipeline.verify.fleet.expected import CAUSES
from schemas.fleet_rows import FillsRow, RedundancyRow
from schemas.residency import FILLED, ResidencyChanges, ResidencyRecord, SourceChanges
from schemas.setting_rows import HashGroupRow
from schemas.settings import Fleet
from tests.support.fleet_recount import agree, compared, resident_tokens, rows_of
from tests.support.inputs.fleet_walks import walked, walks
from tests.support.suite.night import examples


@examples(300)
@given(
    walks,
    st.sampled_from([3600.0, 60.0, 12.0]),
    st.sampled_from([2_000_000, 3, 1]),
    st.integers(1, 9),
    st.lists(st.integers(0, 60), max_size=3),
    st.sampled_from([0, 1, 2, 5]),
    st.sets(st.integers(0, 3)),
    st.sets(st.integers(0, 3)),
)
def test_rows_are_those_of_the_recount(
    walk: Any,
    horizon: float,
    ghosts: int,
    every: int,
    killed: list[int],
    compare_after: int,
    salted: set[int],
    receivers: set[int],
) -> None:
    end = walked(walk, salted, receivers)
    records = end.records
    fleet = Fleet(horizon_seconds=horizon, max_ghosts=ghosts, compare_after=compare_after)
    rows = rows_of(records, fleet, every=every, killed=tuple(killed))
    findings = compared(records, rows, fleet)
    agree(findings, rows)
    for row in rows:
        if isinstance(row, FillsRow):
            assert row.filled_blocks == sum(getattr(row, f"{cause}_blocks") for cause in CAUSES)
            assert row.filled_tokens == sum(getattr(row, f"{cause}_tokens") for cause in CAUSES)
    # What is resident, and nothing of a past incarnation.
    assert resident_tokens(rows) == end.physical_tokens()


@examples(100)
@given(walks, st.floats(0, 1), st.integers(1, 9))
def test_an_agent_that_is_behind_is_not_wrong(walk: Any, part: float, every: int) -> None:
    records = walked(walk).records
    fleet = Fleet()
    done = round(part * len(records))
    rows = rows_of(records[:done], fleet, every=every) if done else []
    findings = compared(records, rows, fleet, committed=done)
    agree(findings, rows)


@examples(100)
@given(walks, st.integers(1, 9), st.lists(st.integers(0, 60), max_size=3), st.sets(st.integers(0, 60)))
def test_records_set_aside_are_no_difference(
    walk: Any, every: int, killed: list[int], places: set[int]
) -> None:
    records = walked(walk).records
    fleet = Fleet(horizon_seconds=60.0)
    refused = {
        number: RecordRefused("uneven_columns", "", (SourceName(f"r{number % 3}", 0), SourceName("x", 0)))
        for number in places
    }
    rows = rows_of(records, fleet, every=every, killed=tuple(killed), refused=refused)
    findings = compared(records, rows, fleet, refused=refused)
    assert findings.equal, findings.kept[:3]


@examples(150)
@given(
    walks,
    st.sampled_from([5.0, 40.0, 200.0]),
    st.sampled_from([60.0, 12.0]),
    st.integers(1, 9),
    st.lists(st.integers(0, 60), max_size=3),
    st.sampled_from([0, 1, 2]),
    st.sets(st.integers(0, 3)),
    st.sets(st.integers(0, 3)),
)
def test_agent_and_recount_forget_the_same_sources(
    walk: Any,
    forget: float,
    horizon: float,
    every: int,
    killed: list[int],
    compare_after: int,
    salted: set[int],
    receivers: set[int],
) -> None:
    records = walked(walk, salted, receivers).records
    fleet = Fleet(horizon_seconds=horizon, compare_after=compare_after)
    rows = rows_of(records, fleet, every=every, killed=tuple(killed), forget=forget)
    findings = compared(records, rows, fleet, forget=forget)
    agree(findings, rows)


@pytest.mark.parametrize(("forget", "alike"), [(100.0, 0), (1000.0, 1)], ids=["forgotten", "known"])
def test_a_source_that_was_forgotten_proves_anew_who_hashes_alike(forget: float, alike: int) -> None:
    gpu = ("gpu", 0)
    both = [(0, "block", 1, gpu, 1.0), (1, "block", 1, gpu, 1.0), (0, "cut", 0, gpu, 1.0)]
    gone = [(0, "block", 1, gpu, 1.0), (0, "cut", 0, gpu, 1.0)]
    others = [step for _ in range(40) for step in ((2, "block", 4, gpu, 8.0), (2, "cut", 0, gpu, 0.0))]
    back = [(0, "block", 7, gpu, 1.0), (0, "cut", 0, gpu, 1.0)]
    records = walked([*both, *gone, *others, *back]).records
    fleet = Fleet(horizon_seconds=12.0)
    rows = rows_of(records, fleet, every=3, killed=(20,), forget=forget)
    findings = compared(records, rows, fleet, forget=forget)
    assert findings.equal, findings.kept[:3]
    said = [row for row in rows if isinstance(row, HashGroupRow)]
    assert [row.alike for row in said if (row.replica, row.dp_rank) == ("r0", 0)] == [alike]


def test_a_block_on_two_gpus_is_one_block_also_where_removals_are_not_announced() -> None:
    records = []
    for number, store_only in enumerate((False, True)):
        time, size = struct.pack("<d", 1_000.0 + number), struct.pack("<I", 16)
        part = ResidencyChanges("gpu", 0, b"one hash", bytes([FILLED]), time, size, store_only=store_only)
        source = SourceChanges(f"r{number}", "m", "d", 0, 1, "complete", [part])
        records.append(ResidencyRecord(0, 0, number, [source]))
    rows = rows_of(records, Fleet())
    assert compared(records, rows, Fleet()).equal
    [row] = [row for row in rows if isinstance(row, RedundancyRow)]
    assert (row.owners_1, row.owners_2, row.unique_tokens, row.physical_tokens) == (0, 1, 16, 32)
    assert [row.peer_blocks for row in rows if isinstance(row, FillsRow) and row.replica == "r1"] == [1]
