"""A short run of `make fuzz`: the long ones are for whoever changes a decoder."""

from __future__ import annotations

import pytest

from tests.fuzz.run import fuzzed
from tests.support.suite.night import first_by_day


@pytest.mark.parametrize("count", first_by_day([500, 2_500]))
def test_whatever_an_engine_sends_decoders_agree_and_the_worker_applies_it(count: int) -> None:
    report = fuzzed(seed=1, first=0, count=count)
    assert report.failures == []
    outcomes = report.outcomes
    # They go every way there is.
    assert outcomes["scanned"] > 0.08 * count
    assert outcomes["reference"] > outcomes["scanned alone"] > 0.08 * count
    assert sum(name.startswith("refused") for name in outcomes) >= 2
    assert sum(name.startswith("left out") for name in outcomes) >= 12
    assert outcomes["records"] > 0.04 * count
    assert outcomes["rows"] > 0.02 * count
