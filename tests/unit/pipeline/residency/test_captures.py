"""Residency of real engines' streams against the engines' own truth, at every sequence number."""

from __future__ import annotations

from typing import Any

import pytest

from connectors.normalise.normaliser import Normaliser
from pipeline.residency.partition import PartitionState
from schemas.events import Batch, EventsRecord, Opened
from schemas.settings import Worker
from tests.support.inputs.captures import NAMES, captured_frames, captured_truth
from tests.support.suite.night import first_by_day


def frames(name: str) -> list[tuple[int, bytes]]:
    return [(int.from_bytes(seq, "big"), payload) for _, seq, payload in captured_frames(name)]


def truth(name: str) -> dict[str, Any]:
    result: dict[str, Any] = captured_truth(name)
    return result


def unsigned(shown: int | str) -> int:
    return int.from_bytes(bytes.fromhex(shown)[-8:], "big") if isinstance(shown, str) else shown % 2**64


@pytest.mark.parametrize("restored", first_by_day([False, True]), ids=["straight", "restored"])
@pytest.mark.parametrize("name", NAMES)
def test_counts_equal_the_engine_at_every_sequence_number(name: str, restored: bool) -> None:
    expected = truth(name)
    sglang = expected["engine"] == "sglang"
    normaliser = Normaliser(max_frame_bytes=1 << 24)
    state = PartitionState(0, Worker(), shards=4)
    latest: dict[bytes, bytes] = {}
    opened = False
    checkpoints = {row[0]: row for row in expected["checkpoints"]}
    checked = 0
    for offset, (seq, payload) in enumerate(frames(name)):
        batch = normaliser.normalise(payload, seq=seq, received_at=1_900_000_000.0)
        batches = [batch] if opened else [Batch(None, batch.ts, batch.ts, [Opened(0, complete=True)]), batch]
        opened = True
        record = EventsRecord(
            name, "m", "d", 0, 1, batches, engine=normaliser.engine, wire_era=normaliser.wire_era
        )
        state.apply(offset, record)
        gpu = [row for row in state.sources[name, 0].occupancy() if row.medium == "gpu"]
        physical, distinct = sum(row.entries for row in gpu), sum(row.blocks for row in gpu)
        if sglang:
            assert physical == checkpoints[seq][1]
        else:
            assert (distinct, physical) == tuple(checkpoints[seq][1:3])
        checked += 1
        if restored and offset % 97 == 0:
            state.leaves()
            latest.update(state.cut(batch.ts).checkpoints)
            state = PartitionState.restore(0, Worker(), shards=4, latest=latest)
    assert checked == len(checkpoints) == expected["received_batches"]

    source = state.sources[name, 0]
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
