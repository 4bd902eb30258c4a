"""The line that says how far a recomputation is."""

from __future__ import annotations

import pytest

from pipeline.rebuild.discard import Extent
from pipeline.rebuild.recomputing import Standing, _done


@pytest.mark.parametrize(
    ("standing", "line"),
    [
        (Standing(3.0, 0, 5_000, 0), "0 of 5,000 event records (0 %), none applied yet"),
        (Standing(10.0, 2_000, 5_000, 9), "2,000 of 5,000 event records (40 %), 200/s, 15 s left"),
        (Standing(60.0, 6_000, 600_000, 0), "6,000 of 600,000 event records (1 %), 100/s, 99 min left"),
        (Standing(60.0, 600, 600_000, 0), "600 of 600,000 event records (0 %), 10/s, 16 h 39 min left"),
        (
            Standing(9.0, 5_000, 5_000, 1_200),
            "all 5,000 event records, the fleet agent has 1,200 records to go",
        ),
        (Standing(9.0, 5_000, 5_000, 0), "all 5,000 event records"),
    ],
)
def test_progress_has_share_rate_and_time_left(standing: Standing, line: str) -> None:
    assert str(standing) == line


def test_records_that_retention_removed_meanwhile_are_not_missing() -> None:
    events = Extent("events", {0: 10, 1: 0, 2: 0}, {0: 20, 1: 5, 2: 5})
    assert _done(events, {0: 7, 1: 9}) == (5, 20)
    assert _done(events, {0: 20, 1: 5, 2: 3}) == (18, 20)
