"""Example records of the checkpoint topics of both agents."""

from __future__ import annotations

import msgspec

from pipeline.fleet.snapshot import MAX_SECONDS
from pipeline.fleet.state import FleetState
from pipeline.generated.examples.blocks import START
from pipeline.generated.examples.events import events_examples
from pipeline.generated.examples.residency import residency_examples
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
from schemas.fleet_checkpoints import HEAD_KEY, FleetHead, FleetPart, part_key
from schemas.settings import Fleet, Worker

SHARDS = 8
OFFSET = 811
"""Of the example run in its partition."""
SPREAD = 0x1E3779B97F4A7C15
"""Nobody's secret: examples are the same each time."""

SHARD = 4
FLEET_OFFSET = 4711
"""Of the first residency example in the partition of SHARD."""
TABLES = ("blocks", "pairs")
"""Those that make up nearly all of the fleet agent's base."""

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


def fleet_checkpoint_examples() -> dict[str, msgspec.Struct]:
    """Return {name: record}: a base made from the residency examples, its head and its parts of TABLES."""
    state = FleetState(SHARD, Fleet(), carry_seconds=0.0)
    state.cut(START)
    for number, record in enumerate(residency_examples().values()):
        state.apply(FLEET_OFFSET + 2 * number, record)
    latest = dict(state.cut(START + MAX_SECONDS).checkpoints)
    head = msgspec.msgpack.decode(latest[HEAD_KEY], type=FleetHead)
    parts = [
        msgspec.msgpack.decode(latest[part_key(head.epoch, number)], type=FleetPart)
        for number in range(head.parts)
    ]
    return {"head": head, **{part.table: part for part in parts if part.table in TABLES}}
