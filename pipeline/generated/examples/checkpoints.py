"""Example records of the checkpoint topic: what the replica agent saves while it reads the example run.

They belong together: base, delta and head restore the state at the offset in `meta`.
"""

from __future__ import annotations

import msgspec

from pipeline.generated.examples.blocks import START
from pipeline.generated.examples.events import events_examples
from pipeline.residency.checkpoint.snapshot import SourceSnapshots
from pipeline.residency.partition import PartitionState
from pipeline.residency.source import SourceResidency, new_head
from schemas.checkpoints import (
    FORMAT,
    HEAD,
    META_KEY,
    PartitionMeta,
    PoolsRecord,
    SourceHead,
    base_slot,
    slot_key,
)
from schemas.settings import Worker

SHARDS = 8
OFFSET = 811
"""Of the example run in its partition."""
SPREAD = 0x1E3779B97F4A7C15
"""Nobody's secret: examples are the same each time."""

SLOTS: dict[str, tuple[bytes, type[msgspec.Struct]]] = {
    "head": (slot_key("vllm-0", 0, HEAD), SourceHead),
    "base": (slot_key("vllm-0", 0, base_slot(0)), PoolsRecord),
    "delta": (slot_key("vllm-0", 0, 1), PoolsRecord),
    "meta": (META_KEY, PartitionMeta),
}
"""Name of the example -> key and type of the record."""


def checkpoint_examples() -> dict[str, msgspec.Struct]:
    """Return {name: record}: base after the first batch, then delta, head and meta as they are at the end."""
    run = events_examples()["run"]
    state = PartitionState(0, Worker(), shards=SHARDS)
    head = new_head("vllm-0", 0)
    head.spread = SPREAD
    source = state.sources["vllm-0", 0] = SourceResidency(head, Worker())
    state.apply(OFFSET, msgspec.structs.replace(run, batches=run.batches[:2]))
    snapshots = SourceSnapshots(source)
    latest = dict(snapshots.deltas() + snapshots.base())
    state.apply(OFFSET + 1, msgspec.structs.replace(run, batches=run.batches[2:]))
    source.windows.take(START + 1.0)
    latest.update([*snapshots.deltas(), *snapshots.head()])
    latest[META_KEY] = msgspec.msgpack.encode(PartitionMeta(OFFSET + 2, FORMAT))
    return {name: msgspec.msgpack.decode(latest[key], type=record) for name, (key, record) in SLOTS.items()}
