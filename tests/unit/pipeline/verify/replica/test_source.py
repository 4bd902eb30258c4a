"""The recount of real engines' streams against the engines' own truth, at every sequence number."""

from __future__ import annotations

from collections import Counter

import pytest

from pipeline.verify.replica.source import SourceRecount
from schemas.settings import Worker
from tests.support.inputs.captures import NAMES, captured_records, captured_truth
from tests.support.suite.night import first_by_day


def on_gpu(source: SourceRecount) -> tuple[int, int]:
    """Distinct blocks and physical entries."""
    held = [held for medium, _, held in source.held(0.0) if medium == "gpu"]
    return sum(one.blocks for one in held), sum(one.entries for one in held)


@pytest.mark.parametrize("name", first_by_day(NAMES, 3))
def test_counts_equal_the_engine_at_every_sequence_number(name: str) -> None:
    truth = captured_truth(name)
    checkpoints = {row[0]: row for row in truth["checkpoints"]}
    records = [*captured_records(name)]
    source = SourceRecount(name, 0, Worker())
    flow: Counter[str] = Counter()

    def add(_window: int) -> None:
        for (medium, _), pool in source.pools.items():
            if medium == "gpu":
                flow.update(removed=pool.flow.removed_blocks, unknown=pool.flow.unknown_removed_blocks)

    source.on_window_closed = add
    for offset, said in enumerate(records):
        source.apply(offset, said)
        seq = said.last_seq
        if truth["engine"] == "sglang":
            assert on_gpu(source)[1] == checkpoints[seq][1]
        else:
            assert on_gpu(source) == tuple(checkpoints[seq][1:3])
    assert len(records) == len(checkpoints) == truth["received_batches"]
    add(0)
    assert flow["unknown"] == 0
    if "blocks_evicted" in truth.get("engine_counters", {}):
        assert flow["removed"] == truth["engine_counters"]["blocks_evicted"]
    if "offload" in truth:
        ready = sum(held.blocks for medium, _, held in source.held(0.0) if medium == "cpu")
        assert ready == truth["offload"]["final_ready_chunks"]
    assert source.trust.of_all(source.media()).trust == "complete"
