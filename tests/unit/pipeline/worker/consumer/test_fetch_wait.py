"""Fetches wait longer where rounds are few, and never long where much is left to apply."""

from __future__ import annotations

import pytest

from pipeline.worker.consumer.transport import fetch_wait


@pytest.mark.parametrize(
    ("round_seconds", "seconds"), [(0.05, 0.05), (0.5, 0.05), (1.0, 0.1), (2.0, 0.2), (4.0, 0.4), (60.0, 0.4)]
)
def test_a_tenth_of_the_time_between_rounds_within_bounds(round_seconds: float, seconds: float) -> None:
    assert fetch_wait(round_seconds, far_behind=False) == pytest.approx(seconds)


def test_an_agent_that_is_far_behind_gets_what_there_is() -> None:
    assert fetch_wait(4.0, far_behind=True) == 0.05
