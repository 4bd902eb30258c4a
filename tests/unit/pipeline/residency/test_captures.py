"""Residency of real engines' streams against the engines' own truth, at every sequence number."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.inputs.captures import NAMES, captured_final, captured_records, captured_truth
from tests.support.replica_agent import ReplicaAgent
from tests.support.suite.night import first_by_day


@pytest.mark.parametrize("restored", first_by_day([False, True]), ids=["straight", "restored"])
@pytest.mark.parametrize("name", NAMES)
def test_counts_equal_the_engine_at_every_sequence_number(name: str, restored: bool) -> None:
    expected: dict[str, Any] = captured_truth(name)
    sglang = expected["engine"] == "sglang"
    agent = ReplicaAgent(shards=4)
    checkpoints = {row[0]: row for row in expected["checkpoints"]}
    for said in captured_records(name):
        agent.apply(said)
        seq, at = said.last_seq, said.batches[-1].ts
        gpu = [row for row in agent.source(name).occupancy() if row.medium == "gpu"]
        physical, distinct = sum(row.entries for row in gpu), sum(row.blocks for row in gpu)
        if sglang:
            assert physical == checkpoints[seq][1]
        else:
            assert (distinct, physical) == tuple(checkpoints[seq][1:3])
        if restored and len(agent.log) % 97 == 1:
            agent.moved(at)
    assert len(agent.log) == len(checkpoints) == expected["received_batches"]

    source = agent.source(name)
    source.pools.settle()
    resident = {
        (pool.head.group_idx, block): copies
        for pool in source.pools
        if pool.head.medium == "gpu"
        for block, copies in pool.copies.live()[["hash", "copies"]].tolist()
    }
    assert resident == captured_final(name)
    assert source.overall_trust().trust == "complete"
    if not restored:
        flow = agent.flow(name)
        assert all(pool.unknown_removed_blocks == 0 for pool in flow.values())
        if "blocks_evicted" in expected.get("engine_counters", {}):
            removed = sum(pool.removed_blocks for (medium, _), pool in flow.items() if medium == "gpu")
            assert removed == expected["engine_counters"]["blocks_evicted"]
    if "offload" in expected:
        cpu = [row for row in source.occupancy() if row.medium == "cpu"]
        assert sum(row.blocks for row in cpu) == expected["offload"]["final_ready_chunks"]
