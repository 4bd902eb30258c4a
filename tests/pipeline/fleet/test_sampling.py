"""Sampling one block in n: shares stay within the stated error on a trace, memory falls accordingly.

`KVLENS_TRACE` names another trace in Mooncake's format.
"""

from __future__ import annotations

import math
import os
from collections import Counter
from pathlib import Path

import pytest

from pipeline.fleet.state import FleetState
from pipeline.local.simulator.trace import TraceRequest, read_trace
from schemas.residency import ResidencyRecord
from schemas.rows import FillsRow
from schemas.settings import Fleet
from tests.pipeline.fleet.comparing import CAUSES
from tests.pipeline.fleet.traced import events, residency

ROOT = Path(__file__).resolve().parents[3]
TRACE = Path(
    os.environ.get("KVLENS_TRACE", ROOT / "tests/data/simulator/mooncake_conversation_1500.jsonl.gz")
)
REPLICAS, BUDGET = 4, 2000


def counted(records: list[ResidencyRecord], rate: float) -> tuple[Counter[str], int, int]:
    """Return blocks by cause, changes followed and bytes allocated."""
    state = FleetState(0, Fleet(sample_rate=rate), carry_seconds=0.0)
    for offset, record in enumerate(records):
        state.apply(offset, record)
    causes: Counter[str] = Counter()
    for row in state.cut(0.0).rows:
        if isinstance(row, FillsRow):
            assert row.sampled_one_in == round(1 / rate)
            causes.update({cause: getattr(row, f"{cause}_blocks") for cause in CAUSES})
    return causes, state.followed, state.bytes_allocated


@pytest.fixture(scope="module")
def trace() -> list[TraceRequest]:
    return read_trace(TRACE)


@pytest.fixture(scope="module")
def records(trace: list[TraceRequest]) -> list[ResidencyRecord]:
    return residency(events(trace, REPLICAS, BUDGET))


@pytest.mark.parametrize("one_in", [4, 16])
def test_shares_of_a_sample_are_within_the_stated_error(
    one_in: int, trace: list[TraceRequest], records: list[ResidencyRecord]
) -> None:
    whole, followed, allocated = counted(records, 1.0)
    sample, sampled, smaller = counted(records, 1 / one_in)
    distinct = len({block for request in trace for block in request.hash_ids})
    fills, estimated = whole.total(), sample.total()
    assert fills > 3 * whole["evicted"] > 0 < whole["peer"]
    assert sampled / followed == pytest.approx(1 / one_in, rel=0.15)
    assert smaller < 2.5 * allocated / one_in
    for cause in CAUSES:
        share, estimate = whole[cause] / fills, sample[cause] / estimated
        error = math.sqrt(share * (1 - share) * one_in / fills * (fills / distinct))
        assert abs(estimate - share) <= 3 * error
        if distinct / one_in >= 10_000:
            assert abs(estimate - share) <= 0.02
