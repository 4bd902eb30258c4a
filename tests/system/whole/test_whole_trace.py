"""Advice and money of the whole conversation trace are those of a plain count, and those in the docs."""

from __future__ import annotations

from pathlib import Path

import pytest

from pipeline.local.clickhouse.embedded import EmbeddedStore
from tests.support.advice import whole_trace
from tests.support.advice.recount import recount

pytestmark = pytest.mark.night

FILLED, AVOIDABLE, ROUTING, CAPACITY, AT_MOST = 133_227_008, 39_638_528, 32_095_744, 4_735_488, 5_644_288
"""Tokens, as tests/bench/RESULTS.md has them."""
GPU_SECONDS = 19_354.75
"""Of what was avoidable: each token takes four GPUs 1 / 8,192 s."""


def test_every_figure_is_that_of_the_recount(store: EmbeddedStore, tmp_path: Path) -> None:
    scenario = whole_trace.whole(tmp_path)
    counted = whole_trace.counted(scenario, recount(scenario))
    told = whole_trace.told(scenario, store)
    assert len(scenario.requests) == 12_031
    assert whole_trace.differing(counted, told) == []
    assert (told["filled"], told["avoidable"]) == (FILLED, AVOIDABLE)
    assert told["advice routing"] == ROUTING
    assert (told["advice capacity"], told["advice capacity, at most"]) == (CAPACITY, AT_MOST)
    lost = {name: figure for name, figure in told.items() if name.startswith("GPU-seconds ")}
    assert lost.keys() == {f"GPU-seconds {cause}" for cause in whole_trace.LOST}
    assert sum(lost.values()) == pytest.approx(GPU_SECONDS)
    assert sum(told[f"cost {cause}"] for cause in whole_trace.LOST) == pytest.approx(GPU_SECONDS / 3600 * 2.5)


def test_a_figure_that_differs_or_is_missing_is_named() -> None:
    counted = {"filled": 10.0, "avoidable": 4.0, "cost peer": 1.0}
    assert whole_trace.differing(counted, dict(counted)) == []
    told = {"filled": 10.0, "avoidable": 5.0, "cost evicted": 1.0}
    assert whole_trace.differing(counted, told) == ["avoidable", "cost evicted", "cost peer"]
