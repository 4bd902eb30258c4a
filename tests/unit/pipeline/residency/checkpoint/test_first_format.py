"""A checkpoint of the first format, byte by byte as it was written, is continued."""

from __future__ import annotations

from pipeline.residency.partition import PartitionState
from schemas.checkpoints import META_KEY, slot_key
from schemas.settings import Worker
from tests.support.checkout import ROOT

FILES = ROOT / "tests" / "support" / "inputs" / "first_format"
"""Saved after the run of `pipeline.generated.examples`: a base after the first batch, and a delta."""
KEYS = {
    "head": slot_key("vllm-0", 0, "head"),
    "base": slot_key("vllm-0", 0, "base"),
    "delta": slot_key("vllm-0", 0, 1),
    "meta": META_KEY,
}


def test_what_the_first_format_held_is_there_and_is_saved_in_that_of_today() -> None:
    latest = {key: (FILES / f"{name}.msgpack").read_bytes() for name, key in KEYS.items()}
    state = PartitionState.restore(0, Worker(), shards=8, latest=latest)
    assert state.next_offset == 813
    source = state.sources["vllm-0", 0]
    assert (source.head.last_seq, source.overall_trust().trust) == (2, "complete")
    (gpu,) = source.occupancy()
    assert (gpu.entries, gpu.blocks, gpu.tokens) == (5, 3, 48)
    state.next_offset = 814
    source.unsaved = True
    latest.update(state.cut(2e9).checkpoints)
    again = PartitionState.restore(0, Worker(), shards=8, latest=latest).sources["vllm-0", 0]
    assert [(each.entries, each.blocks) for each in again.occupancy()] == [(5, 3)]
    assert again.head.bases is not None
