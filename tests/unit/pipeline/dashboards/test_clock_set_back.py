"""Figures are not kept for longer because the clock was set back."""

from __future__ import annotations

from typing import Any

from pipeline.dashboards.fleet_metrics.collection import FleetMetrics
from pipeline.dashboards.page.answers import Answer


async def test_figures_are_renewed_after_the_clock_was_set_back() -> None:
    class Counted:
        asked = 0

        async def of(self, *_: object) -> Answer:
            self.asked += 1
            return Answer((), [], (), 10)

    answers: Any = Counted()
    times = [10_000.0, 10_009.0, 6_400.0, 6_409.0, 6_410.0]
    pages = FleetMetrics(answers, lambda: times[0])
    asked = []
    while times:
        await pages.figures()
        asked.append(answers.asked)
        times.pop(0)
    assert asked == [1, 1, 2, 2, 3]
