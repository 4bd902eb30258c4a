"""However little room there is for windows that end between two cuts, their rows are the same."""

from __future__ import annotations

import random

import pytest

from pipeline.fleet import open_windows
from pipeline.fleet.state import FleetState
from schemas.fleet_rows import FillsRow
from schemas.rows import Row
from schemas.settings import Fleet
from tests.support.inputs.residency_walks import residency

RECORDS = 16
NAMES = "abcdefgh"


def fill_rows(seed: int, *, every: int) -> list[FillsRow]:
    """Return the last row of each source and window."""
    rng = random.Random(seed)
    state = FleetState(0, Fleet(), carry_seconds=0.0)
    rows: list[Row] = []
    for offset in range(RECORDS):
        # Records of nine seconds each: windows end inside of them.
        state.apply(offset, residency(offset, rng, names=NAMES))
        if offset % every == every - 1:
            rows += state.cut(0.0).rows
    fills = [row for row in rows if isinstance(row, FillsRow)]
    last = {(row.window, row.replica): row for row in fills}
    return [last[key] for key in sorted(last)]


@pytest.mark.parametrize("seed", range(5))
def test_rows_of_ended_windows_need_no_room(monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    plenty = fill_rows(seed, every=RECORDS)
    assert len(plenty) > 3 * len(NAMES)
    monkeypatch.setattr(open_windows, "ENDED", 1)
    assert fill_rows(seed, every=RECORDS) == plenty
    assert fill_rows(seed, every=1) == plenty
