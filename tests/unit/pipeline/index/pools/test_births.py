"""The times at which blocks came: what they take in memory, and that they are those of the first copies."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest

from pipeline.index.pools.births import Births
from pipeline.reading.columns import EVENT, Events
from pipeline.residency.counting.block_entries import BlockColumns
from schemas.pool_checkpoints import FlowState, PoolHead

BLOCKS = 500


def head(medium: str = "gpu", *, store_only: bool = False) -> PoolHead:
    return PoolHead(medium, 0, FlowState(), block_sizes=[16], removed=[0], store_only=store_only)


def stores(hashes: np.ndarray, at: float) -> Events:
    """Return the event that stores these blocks at a time."""
    rows = np.zeros(1, EVENT)
    rows["hashes"], rows["block_size"], rows["time"] = len(hashes), 16, at
    return Events(rows, hashes)


def columns(hashes: np.ndarray) -> BlockColumns:
    nothing, none = np.zeros(len(hashes), np.uint64), np.zeros(len(hashes), np.uint16)
    ones = np.ones(len(hashes), np.int32)
    return BlockColumns(hashes, ones, np.full(len(hashes), 0.5), none, nothing, none, nothing)


def test_what_is_announced_again_takes_no_more_memory() -> None:
    births, of = Births(), head()
    hashes = np.arange(1, BLOCKS + 1, dtype=np.uint64)
    births.put(of, columns(hashes[:100]))
    tracemalloc.start()
    for at in range(1, 400):
        births.stored(of, stores(hashes.copy(), float(at)))
    taken, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert taken < 200_000, taken
    assert births.of(hashes).tolist() == [0.5] * 100 + [1.0] * 400
    assert births.of(hashes + np.uint64(BLOCKS)).tolist() == [0.0] * BLOCKS


@pytest.mark.parametrize("of", [head("cpu", store_only=True), head("fs"), head("pool:dram")])
def test_what_never_has_two_granularities_has_no_times(of: PoolHead) -> None:
    births, hashes = Births(), np.arange(1, BLOCKS + 1, dtype=np.uint64)
    births.put(of, columns(hashes))
    births.stored(of, stores(hashes, 1.0))
    assert not births.of(hashes).any()
