"""A worker of today continues from the checkpoint that one of a release left."""

from __future__ import annotations

from pathlib import Path

from pipeline.generated.examples.blocks import ANSWER, PROMPT
from pipeline.generated.examples.checkpoints import OFFSET, SHARDS, SLOTS, checkpoint_log
from pipeline.generated.examples.events import batch, events_record
from pipeline.residency.partition import PartitionState
from schemas.events import Removed, Stored
from schemas.rows import FlowRow, OccupancyRow
from schemas.settings import Worker
from tests.support.inputs.packed import packed


def restored(directory: Path) -> PartitionState:
    latest = {key: (directory / f"{name}.msgpack").read_bytes() for name, (key, _) in SLOTS.items()}
    state = PartitionState.restore(0, Worker(), shards=SHARDS, latest=latest)
    assert state.next_offset == OFFSET + 1, "the base lacks the last record"
    state.apply(state.next_offset, checkpoint_log()[1])
    return state


def test_position_and_residency_come_back(frozen_set: Path) -> None:
    state = restored(frozen_set / "checkpoints.replica.v1")
    assert state.next_offset == OFFSET + 2
    source = state.sources["vllm-0", 0]
    assert (source.head.last_seq, source.overall_trust().trust) == (2, "complete")
    (gpu,) = source.occupancy()
    # Three prompt blocks were stored twice, two answers came and went, and the last prompt block once.
    assert (gpu.medium, gpu.block_size, gpu.entries, gpu.blocks, gpu.tokens) == ("gpu", 16, 5, 3, 48)


def test_work_goes_on_with_the_counts_of_before(frozen_set: Path) -> None:
    state = restored(frozen_set / "checkpoints.replica.v1")
    record = events_record(
        batch(2, Stored(hashes=packed(*ANSWER), block_size=16, tokens=32)),
        batch(3, Removed(hashes=packed(PROMPT[0], PROMPT[0], PROMPT[1]))),
        batch(80, Stored(hashes=packed(ANSWER[0]), block_size=16, tokens=16)),
    )
    state.apply(OFFSET + 2, record)
    rows = state.cut(1_767_225_640.0).rows
    first = min((row for row in rows if isinstance(row, OccupancyRow)), key=lambda row: row.window)
    assert (first.entries, first.blocks) == (2, 2), (
        "batch 2 was applied before the checkpoint; 3 took one block"
    )
    flow = min((row for row in rows if isinstance(row, FlowRow)), key=lambda row: row.window)
    assert (flow.stored_blocks, flow.removed_blocks, flow.evicted_blocks) == (8, 6, 4)
