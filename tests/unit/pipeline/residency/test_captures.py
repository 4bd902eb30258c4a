"""Residency of real engines' streams against the engines' own truth, at every sequence number."""

from __future__ import annotations

from typing import Any

import pytest

from connectors.normalise.normaliser import Normaliser
from tests.support.inputs.captures import NAMES, captured_frames, captured_truth
from tests.support.inputs.event_records import opened, record
from tests.support.replica_agent import ReplicaAgent
from tests.support.suite.night import first_by_day


def unsigned(shown: int | str) -> int:
    return int.from_bytes(bytes.fromhex(shown)[-8:], "big") if isinstance(shown, str) else shown % 2**64


@pytest.mark.parametrize("restored", first_by_day([False, True]), ids=["straight", "restored"])
@pytest.mark.parametrize("name", NAMES)
def test_counts_equal_the_engine_at_every_sequence_number(name: str, restored: bool) -> None:
    expected: dict[str, Any] = captured_truth(name)
    sglang = expected["engine"] == "sglang"
    normaliser = Normaliser(max_frame_bytes=1 << 24)
    agent = ReplicaAgent(shards=4)
    checkpoints = {row[0]: row for row in expected["checkpoints"]}
    for _, number, payload in captured_frames(name):
        seq = int.from_bytes(number, "big")
        batch = normaliser.normalise(payload, seq=seq, received_at=1_900_000_000.0)
        said = {"engine": normaliser.engine, "wire_era": normaliser.wire_era}
        agent.apply(record(*([] if agent.log else [opened(batch.ts)]), batch, replica=name, **said))
        gpu = [row for row in agent.source(name).occupancy() if row.medium == "gpu"]
        physical, distinct = sum(row.entries for row in gpu), sum(row.blocks for row in gpu)
        if sglang:
            assert physical == checkpoints[seq][1]
        else:
            assert (distinct, physical) == tuple(checkpoints[seq][1:3])
        if restored and len(agent.log) % 97 == 1:
            agent.moved(batch.ts)
    assert len(agent.log) == len(checkpoints) == expected["received_batches"]

    source = agent.source(name)
    source.pools.settle()
    resident = {
        (pool.head.group_idx, block): copies
        for pool in source.pools
        if pool.head.medium == "gpu"
        for block, copies in pool.table.live()[["hash", "copies"]].tolist()
    }
    final: dict[tuple[int, int], int] = {}
    for row in expected["final_cached"]:
        group, shown, copies = (0, row[1], 1) if sglang else row
        final[group, unsigned(shown)] = final.get((group, unsigned(shown)), 0) + copies
    assert resident == final
    assert source.overall_trust().trust == "complete"
    if not restored:
        flow = source.pools.flow_since_start()
        assert all(pool.unknown_removed_blocks == 0 for pool in flow.values())
        if "blocks_evicted" in expected.get("engine_counters", {}):
            removed = sum(pool.removed_blocks for (medium, _), pool in flow.items() if medium == "gpu")
            assert removed == expected["engine_counters"]["blocks_evicted"]
    if "offload" in expected:
        cpu = [row for row in source.occupancy() if row.medium == "cpu"]
        assert sum(row.blocks for row in cpu) == expected["offload"]["final_ready_chunks"]
