"""Two granularities, as the worker keeps them and as a recount does, under events that no engine makes."""

from __future__ import annotations

import random
from dataclasses import asdict

import msgspec
import pytest

from pipeline.residency.granularity.two_sizes import GranularPool
from pipeline.verify.replica.copies import Copies
from pipeline.verify.replica.residency_sums import Resident
from pipeline.verify.replica.two_sizes import TwoSizes
from schemas.events import Stored
from schemas.pool_checkpoints import FlowState, GranularState, PoolHead
from schemas.residency import FILLED
from tests.support.inputs.packed import packed
from tests.support.suite.night import first_by_day

FINE, COARSE = 16, 48
AGE = 50.0
STEPS = 300


class Both:
    """A pool and its recount, fed with the same."""

    def __init__(self) -> None:
        state = GranularState(COARSE, FINE)
        self.pool = GranularPool(PoolHead("gpu", 0, FlowState(), granular=state), state, age=AGE)
        self.recount = TwoSizes(Copies(store_only=False), COARSE, FINE, AGE)
        self.told: set[int] = set()
        """What the changes say is resident."""
        self.announced: set[int] = set()
        """Fine blocks since the last clear."""

    def store(self, hashes: tuple[int, ...], size: int, parent: int | None, at: float) -> None:
        packed_parent = None if parent is None else packed(parent)
        self.announced |= {*hashes} if size == FINE else set()
        self.pool.store(Stored(packed(*hashes), size, parent=packed_parent), at)
        self.recount.store(hashes, size, parent, at)

    def remove(self, hashes: tuple[int, ...], at: float) -> None:
        self.pool.remove(packed(*hashes), at)
        self.recount.remove(hashes, at)

    def clear(self, at: float) -> None:
        self.announced.clear()
        self.pool.clear(at)
        self.recount.clear(at)

    def batch_ended(self, at: float) -> None:
        self.pool.batch_ended(at)
        self.recount.batch_ended()

    def restored(self) -> None:
        """Begin again from what a checkpoint holds."""
        self._tell()
        head = msgspec.msgpack.decode(msgspec.msgpack.encode(self.pool.head), type=PoolHead)
        assert head.granular is not None
        self.pool = GranularPool(head, head.granular, age=AGE)

    def equal(self, at: float) -> None:
        found = [
            (one.block_size, one.entries, one.blocks, one.tokens, one.covered_blocks)
            for one in self.pool.occupancy(at)
        ]
        assert found == [tuple(held) for held in self.recount.held(at)]
        # Both pair by one rule. Of any it holds that a token counts once and leaves with what covers it.
        (_, _, coarse, _, _), (_, _, alone, tokens, covered) = found
        assert coarse or not covered
        assert alone + covered <= len(self.announced)
        assert tokens == alone * FINE
        flow = msgspec.structs.asdict(self.pool.head.flow)
        flow["lifetime_hist"] = flow.pop("lifetimes")
        assert flow == asdict(self.recount.flow)
        self._tell()
        assert Resident.of(self.told) == self.recount.residency_sums().resident

    def _tell(self) -> None:
        """Follow the changes so far: nothing comes that is there, or leaves that is not."""
        self.pool.settle()
        for changes in self.pool.changes:
            for block, kind in zip(changes.rows["hash"].tolist(), changes.rows["kind"].tolist(), strict=True):
                assert (block in self.told) == (kind != FILLED)
                self.told ^= {block}
        self.pool.changes = []


@pytest.mark.parametrize("seed", first_by_day(range(20), 5))
def test_both_are_equal_whatever_comes(seed: int) -> None:
    rng = random.Random(seed)
    both = Both()
    names = rng.choice((12, 30, 90))
    apart = rng.choice((0, names // 2, 1_000))
    """Coarse blocks have other hashes than fine ones, or some or all of the same."""
    at = 0.0
    for _ in range(STEPS):
        at += rng.choice((0.0, 0.1, 1.0, AGE / 4))
        kind = rng.random()
        if kind < 0.4:
            first, count = rng.randrange(names), rng.randrange(1, 8)
            parent = rng.choice((None, first - 1 if first else None, rng.randrange(names)))
            both.store(tuple(range(first, first + count)), FINE, parent, at)
        elif kind < 0.65:
            first, count = apart + rng.randrange(names) * FINE // COARSE, rng.randrange(1, 3)
            parent = rng.choice((None, first - 1, first - 1))
            both.store(tuple(range(first, first + count)), COARSE, parent if parent != -1 else None, at)
        elif kind < 0.9:
            offset = rng.choice((0, apart))
            both.remove(tuple(offset + rng.randrange(names) for _ in range(rng.randrange(1, 4))), at)
        elif kind < 0.93:
            both.pool.expire(at)
            both.recount.window_began(at)
        elif kind < 0.935:
            both.clear(at)
        elif kind < 0.96:
            both.restored()
        if rng.random() < 0.6:
            both.batch_ended(at)
        both.equal(at)
