"""How old an index says it is does not depend on the wall clock, which may be set."""

from __future__ import annotations

import time

import pytest

from pipeline.index.following.poll_times import PollTimes


def test_a_clock_that_is_set_back_makes_no_old_poll_young(monkeypatch: pytest.MonkeyPatch) -> None:
    wall, ours = 1000.0, 50.0
    monkeypatch.setattr(time, "time", lambda: wall)
    monkeypatch.setattr(time, "monotonic", lambda: ours)
    polled = PollTimes()
    assert polled.of(0, 999_900) == pytest.approx(49.9)
    wall, ours = 400.0, 60.0
    assert polled.of(0, 999_900) == pytest.approx(49.9)
    assert polled.of(0, 399_950) == pytest.approx(59.95)
    assert polled.of(1, 401_000) == 60.0  # told in the moment in which it was set
