"""A straight line through what was measured, and how straight that was."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Line:
    slope: float
    intercept: float
    apart: float
    """How far the point that fits worst is from the line, as a share of the largest value."""

    def at(self, x: float) -> float:
        return self.intercept + self.slope * x


def fitted(points: Sequence[tuple[float, float]]) -> Line:
    """Return the line of least squares through two points or more."""
    x, y = np.array(points, dtype=float).T
    slope, intercept = np.polyfit(x, y, 1)
    apart = np.abs(intercept + slope * x - y).max() / y.max()
    return Line(float(slope), float(intercept), float(apart))
