"""Causes, regret, redundancy and curve are those of the recount on random walks, however the log is cut."""

from __future__ import annotations

from collections import Counter
from datetime import datetime, timezone
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.fleet.state import FleetState
from pipeline.verify.findings import Findings
from pipeline.verify.fleet.check import ShardCheck
from pipeline.verify.fleet.expected import CAUSES
from pipeline.verify.keys import key_of
from schemas.residency import ResidencyRecord
from schemas.rows import FillsRow, RedundancyRow
from schemas.settings import Fleet
from tests.pipeline.fleet.walks import walked, walks

LONG_AGO = datetime(1970, 1, 1, tzinfo=timezone.utc)


def rows_of(
    records: list[ResidencyRecord], fleet: Fleet, *, every: int = 1, killed: tuple[int, ...] = ()
) -> list[Any]:
    """Winning rows of all cuts; `killed`: records after which the state is lost and loaded again."""
    state = FleetState(0, fleet, carry_seconds=3600)
    table: dict[Any, Any] = {}
    saved: dict[bytes, bytes] = {}
    kills = set(killed)
    now = 0.0

    def insert(rows: list[Any]) -> None:
        for row in rows:
            known = table.get(key_of(row))
            if known is None or row.version >= known.version:
                table[key_of(row)] = row

    while state.next_offset < 2 * len(records) - 1:
        number = (state.next_offset + 1) // 2
        state.apply(2 * number, records[number])  # offsets have holes
        if number % every == 0:
            cut = state.cut(now)
            insert(cut.rows)
            saved.update(cut.checkpoints)
            now += 40.0  # a base at every other cut
        if number in kills:
            kills.remove(number)
            state = FleetState.restore(0, fleet, carry_seconds=3600, latest=saved)
    insert(state.cut(now).rows)
    return list(table.values())


def compared(
    records: list[ResidencyRecord], rows: list[Any], fleet: Fleet, committed: int | None = None
) -> Findings:
    """`committed`: records that the rows rest on, if not all."""
    findings = Findings()
    ahead = 2 * (len(records) if committed is None else committed)
    check = ShardCheck(0, fleet, rows, findings, committed=ahead, oldest=LONG_AGO)
    for number, record in enumerate(records):
        check.apply(2 * number, record)
    check.finish(2 * len(records))
    return findings


@settings(max_examples=300, deadline=None)
@given(
    walks,
    st.sampled_from([3600.0, 60.0, 12.0]),
    st.sampled_from([2_000_000, 3, 1]),
    st.integers(1, 9),
    st.lists(st.integers(0, 60), max_size=3),
    st.sampled_from([0, 1, 2, 5]),
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
) -> None:
    end = walked(walk, salted)
    records = end.records
    fleet = Fleet(horizon_seconds=horizon, max_ghosts=ghosts, compare_after=compare_after)
    rows = rows_of(records, fleet, every=every, killed=tuple(killed))
    findings = compared(records, rows, fleet)
    assert findings.equal, findings.kept[:3]
    assert sum(findings.compared.values()) == len(rows)
    resident = {}
    for row in sorted(rows, key=lambda row: getattr(row, "window", LONG_AGO)):
        if isinstance(row, RedundancyRow):
            resident[row.hash_domain, row.medium, row.group_idx] = row.physical_tokens
        if isinstance(row, FillsRow):
            assert row.filled_blocks == sum(getattr(row, f"{cause}_blocks") for cause in CAUSES)
            assert row.filled_tokens == sum(getattr(row, f"{cause}_tokens") for cause in CAUSES)
    # What is resident, and nothing of a past incarnation.
    assert +Counter(resident) == end.physical_tokens()


@settings(max_examples=100, deadline=None)
@given(walks, st.floats(0, 1), st.integers(1, 9))
def test_an_agent_that_is_behind_is_not_wrong(walk: Any, part: float, every: int) -> None:
    records = walked(walk).records
    fleet = Fleet()
    done = round(part * len(records))
    rows = rows_of(records[:done], fleet, every=every) if done else []
    findings = compared(records, rows, fleet, committed=done)
    assert findings.equal, findings.kept[:3]
    assert sum(findings.compared.values()) == len(rows)
