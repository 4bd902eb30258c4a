"""Sampling one block in n: shares stay within the stated error on a trace, work and memory fall accordingly.

`KVLENS_TRACE` names another trace in Mooncake's format.
"""

from __future__ import annotations

import math
import os
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import pytest

from pipeline.fleet.state import FleetState
from pipeline.traces.reading import read_trace
from pipeline.verify.fleet.expected import CAUSES
from schemas.fleet_rows import CapacityCurveRow, FillsRow, RedundancyRow
from schemas.residency import FILLS, ResidencyRecord
from schemas.settings import Fleet
from tests.support.inputs.traced import events, residency
from tests.support.inputs.whole_trace import unpack

REPLICAS = 4
ROUTING = ("peer", "peer_and_evicted")
CAPACITY = ("evicted", "peer_and_evicted", "evicted_elsewhere")


@pytest.fixture(scope="module")
def records(tmp_path_factory: pytest.TempPathFactory) -> list[ResidencyRecord]:
    """What the replica agent tells of a fleet that loses by routing and by eviction."""
    path = Path(os.environ.get("KVLENS_TRACE", tmp_path_factory.mktemp("trace") / "whole.jsonl"))
    if not path.exists():
        unpack(path)
    requests = read_trace(path).requests
    longest = max(len(request.hash_ids) for request in requests)
    distinct = len({block for request in requests for block in request.hash_ids})
    return residency(events(requests, REPLICAS, max(longest, distinct // 90)))


@dataclass
class Sample:
    """What the fleet agent shows, and what it took."""

    blocks: Counter[str]
    saved: list[int]
    """Tokens, by so many powers of two of extra cache."""
    filled_tokens: int
    owners: list[int]
    """Distinct blocks at the end, by number of owners."""
    followed: int
    allocated: int

    def shares(self) -> dict[str, float]:
        """Every share of `hit_potential` and `capacity_gain`."""
        filled = self.blocks.total()
        shares = {cause: self.blocks[cause] / filled for cause in CAUSES}
        shares["routing"] = sum(self.blocks[cause] for cause in ROUTING) / filled
        shares["capacity"] = sum(self.blocks[cause] for cause in CAPACITY) / filled
        saved = {f"saved by 2**{k}": tokens / self.filled_tokens for k, tokens in enumerate(self.saved)}
        return shares | saved

    def unique(self) -> float:
        """Distinct blocks as a share of those held."""
        return sum(self.owners) / sum(count * number for number, count in enumerate(self.owners, 1))


def sampled(records: list[ResidencyRecord], one_in: int) -> Sample:
    state = FleetState(0, Fleet(sample_rate=1 / one_in), carry_seconds=0.0)
    for offset, record in enumerate(records):
        state.apply(offset, record)
    sample = Sample(
        Counter(),
        [0] * 40,
        0,
        [],
        state.head.followed,
        sum(table.nbytes for table in (state.index.blocks, state.index.pairs, state.index.losses)),
    )
    for row in state.cut(0.0).rows:
        if isinstance(row, FillsRow):
            assert row.sampled_one_in == one_in
            sample.blocks.update({cause: getattr(row, f"{cause}_blocks") for cause in CAUSES})
            sample.filled_tokens += row.filled_tokens
        elif isinstance(row, CapacityCurveRow):
            for k, tokens in enumerate(row.needed_hist):
                for larger in range(k, len(sample.saved)):
                    sample.saved[larger] += tokens
        elif isinstance(row, RedundancyRow):
            # There are four replicas: no class holds blocks of different numbers of owners.
            sample.owners = [row.owners_1, row.owners_2, row.owners_3, row.owners_4_7]
            assert row.owners_8_up == 0
    return sample


@pytest.fixture(scope="module")
def whole(records: list[ResidencyRecord]) -> Sample:
    return sampled(records, 1)


@pytest.mark.night
@pytest.mark.parametrize("one_in", [4, 16])
def test_shares_of_a_sample_are_within_the_stated_error(
    one_in: int, records: list[ResidencyRecord], whole: Sample
) -> None:
    of_block: Counter[bytes] = Counter()
    for record in records:
        for part in (part for source in record.sources for part in source.changes):
            hashes = (part.hashes[at : at + 8] for at in range(0, len(part.hashes), 8))
            of_block.update(block for block, kind in zip(hashes, part.kinds, strict=True) if kind in FILLS)
    fills = of_block.total()
    assert fills == whole.blocks.total() > 3 * whole.blocks["evicted"] > 0 < whole.blocks["peer"]
    weighted = sum(times**2 for times in of_block.values()) / fills
    sample = sampled(records, one_in)
    assert sample.followed / whole.followed == pytest.approx(1 / one_in, rel=0.15)
    assert sample.allocated < 2.5 * whole.allocated / one_in
    estimates = sample.shares()
    for name, share in whole.shares().items():
        stated = 4 * math.sqrt(share * (1 - share) * one_in * weighted / fills) + one_in * weighted / fills
        assert abs(estimates[name] - share) <= stated, name
        if len(of_block) / one_in >= 10_000:
            assert abs(estimates[name] - share) <= 0.02, name
    unique = whole.unique()
    squares = sum(count * (1 - unique * owners) ** 2 for owners, count in enumerate(whole.owners, 1))
    held = sum(count * owners for owners, count in enumerate(whole.owners, 1))
    assert abs(sample.unique() - unique) <= 4 * math.sqrt(one_in * squares) / held
