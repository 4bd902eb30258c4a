"""Causes, regret, redundancy and curve equal a brute-force oracle on random walks, however the log is cut."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.fleet.state import FleetState
from schemas.residency import ResidencyRecord
from schemas.settings import Fleet
from tests.pipeline.fleet.comparing import (
    CAUSES,
    filled_up,
    fills,
    needed,
    newest,
    oracle_fills,
    redundancy,
    trimmed,
)
from tests.pipeline.fleet.oracle import Oracle
from tests.pipeline.fleet.walks import records_of, walks


def rows_of(
    records: list[ResidencyRecord], fleet: Fleet, *, every: int = 1, killed: tuple[int, ...] = ()
) -> list[Any]:
    """Rows of all cuts; `killed`: numbers of records after which the state is lost and loaded again."""
    state = FleetState(0, fleet, carry_seconds=3600)
    rows: list[Any] = []
    saved: dict[bytes, bytes] = {}
    kills = set(killed)
    now = 0.0
    while state.next_offset < 2 * len(records) - 1:
        number = (state.next_offset + 1) // 2
        state.apply(2 * number, records[number])  # offsets have holes
        if number % every == 0:
            cut = state.cut(now)
            rows += cut.rows
            saved.update(cut.checkpoints)
            now += 40.0  # a base at every other cut
        if number in kills:
            kills.remove(number)
            state = FleetState.restore(0, fleet, carry_seconds=3600, latest=saved)
    return [*rows, *state.cut(now).rows]


@settings(max_examples=300, deadline=None)
@given(
    walks,
    st.sampled_from([3600.0, 60.0, 12.0]),
    st.sampled_from([2_000_000, 3, 1]),
    st.integers(1, 9),
    st.lists(st.integers(0, 60), max_size=3),
)
def test_rows_are_those_of_the_oracle(
    walk: Any, horizon: float, ghosts: int, every: int, killed: list[int]
) -> None:
    records = records_of(walk)
    oracle = Oracle(horizon, ghosts)
    for record in records:
        oracle.apply(record)
    fleet = Fleet(horizon_seconds=horizon, max_ghosts=ghosts)
    found = newest(rows_of(records, fleet, every=every, killed=tuple(killed)))
    assert fills(found["fills_10s"]) == oracle_fills(oracle)
    assert needed(found["capacity_curve_10s"]) == {
        (window, domain, model, replica, rank, group): trimmed(histogram)
        for (window, domain, model, replica, rank, group), histogram in oracle.needed.items()
    }
    for row in found["fills_10s"].values():
        causes = [cause for cause in CAUSES if cause != "reannounced"]
        assert row.filled_blocks == sum(getattr(row, f"{cause}_blocks") for cause in causes)
        assert row.filled_tokens == sum(getattr(row, f"{cause}_tokens") for cause in causes)
    assert redundancy(found["redundancy_10s"]) == filled_up(oracle.redundancy)
