"""A short run of `make fuzz`: the long ones are for whoever changes a decoder."""

from __future__ import annotations

from tests.fuzz.run import fuzzed


def test_whatever_an_engine_sends_decoders_agree_and_the_worker_applies_it() -> None:
    report = fuzzed(seed=1, first=0, count=2_500)
    assert report.failures == []
    outcomes = report.outcomes
    # They go every way there is.
    assert outcomes["scanned"] > 200
    assert outcomes["reference"] > outcomes["fast"] > 200
    assert sum(name.startswith("refused") for name in outcomes) >= 2
    assert sum(name.startswith("left out") for name in outcomes) >= 12
    assert outcomes["records"] > 100
    assert outcomes["rows"] > 50
