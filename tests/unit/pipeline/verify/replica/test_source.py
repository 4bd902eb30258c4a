"""The recount of real engines' streams against the engines' own truth, at every sequence number."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from connectors.normalise.normaliser import Normaliser
from pipeline.verify.replica.source import SourceRecount
from schemas.events import Batch, EventsRecord, Opened
from schemas.settings import Worker
from tests.support.inputs.captures import NAMES, captured_frames, captured_truth
from tests.support.suite.night import first_by_day


def loaded(name: str) -> tuple[list[tuple[int, bytes]], dict[str, Any]]:
    truth = captured_truth(name)
    return [(int.from_bytes(seq, "big"), payload) for _, seq, payload in captured_frames(name)], truth


def on_gpu(source: SourceRecount) -> tuple[int, int]:
    """Distinct blocks and physical entries."""
    held = [held for medium, _, held in source.held(0.0) if medium == "gpu"]
    return sum(one.blocks for one in held), sum(one.entries for one in held)


@pytest.mark.parametrize("name", first_by_day(NAMES, 3))
def test_counts_equal_the_engine_at_every_sequence_number(name: str) -> None:
    frames, truth = loaded(name)
    checkpoints = {row[0]: row for row in truth["checkpoints"]}
    normaliser = Normaliser(max_frame_bytes=1 << 24)
    source = SourceRecount(name, 0, Worker())
    flow: Counter[str] = Counter()

    def add(_window: int) -> None:
        for (medium, _), pool in source.pools.items():
            if medium == "gpu":
                flow.update(removed=pool.flow.removed_blocks, unknown=pool.flow.unknown_removed_blocks)

    source.on_window_closed = add
    for offset, (seq, payload) in enumerate(frames):
        batch = normaliser.normalise(payload, seq=seq, received_at=1_900_000_000.0)
        opened = [] if offset else [Batch(None, batch.ts, batch.ts, [Opened(0, complete=True)])]
        source.apply(
            offset,
            EventsRecord(
                name,
                "m",
                "d",
                0,
                1,
                [*opened, batch],
                engine=normaliser.engine,
                wire_era=normaliser.wire_era,
            ),
        )
        if truth["engine"] == "sglang":
            assert on_gpu(source)[1] == checkpoints[seq][1]
        else:
            assert on_gpu(source) == tuple(checkpoints[seq][1:3])
    assert len(frames) == len(checkpoints) == truth["received_batches"]
    add(0)
    assert flow["unknown"] == 0
    if "blocks_evicted" in truth.get("engine_counters", {}):
        assert flow["removed"] == truth["engine_counters"]["blocks_evicted"]
    if "offload" in truth:
        ready = sum(held.blocks for medium, _, held in source.held(0.0) if medium == "cpu")
        assert ready == truth["offload"]["final_ready_chunks"]
    assert source.trust.of_all(source.media()).trust == "complete"
