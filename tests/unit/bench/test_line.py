"""A straight line through the lengths of backlogs."""

from __future__ import annotations

import pytest
from fleet_load.line import fitted


def test_points_on_a_line_give_it() -> None:
    line = fitted([(20, 9), (40, 13), (80, 21)])
    assert (line.slope, line.intercept, line.apart) == pytest.approx((0.2, 5, 0))
    assert line.at(3600) == pytest.approx(725)


def test_a_point_beside_the_line_is_said() -> None:
    line = fitted([(0, 0), (10, 13), (20, 20)])
    assert (line.slope, line.intercept) == pytest.approx((1, 1))
    assert line.apart == pytest.approx(2 / 20)
