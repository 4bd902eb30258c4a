"""Example records of the checkpoint topics of both agents."""

from __future__ import annotations

import msgspec

from pipeline.fleet.snapshot import MAX_SECONDS
from pipeline.fleet.state import FleetState
from pipeline.generated.examples.blocks import START
from pipeline.generated.examples.events import events_examples
from pipeline.generated.examples.residency import residency_examples
from pipeline.residency.partition import PartitionState
from pipeline.residency.stream.session import new_head
from schemas.checkpoints import (
    BASE,
    FORMAT,
    META_KEY,
    BasePart,
    PartitionMeta,
    SourceAtCut,
    SourceBase,
    part_slot,
    slot_key,
)
from schemas.events import EventsRecord
from schemas.fleet_checkpoints import HEAD_KEY, FleetHead, FleetPart, part_key
from schemas.settings import Fleet, Worker

SHARDS = 8
OFFSET = 811
"""Of the example run in its partition."""
SPREAD = 0x1E3779B97F4A7C15
"""Fixed instead of secret, so that examples are the same each time."""

SHARD = 4
FLEET_OFFSET = 4711
"""Of the first residency example in the partition of SHARD."""
TABLES = ("blocks", "pairs")
"""Those that make up nearly all of the fleet agent's base."""

SLOTS: dict[str, tuple[bytes, type[msgspec.Struct]]] = {
    "base": (slot_key("vllm-0", 0, BASE), SourceBase),
    "part": (slot_key("vllm-0", 0, part_slot(1, 0)), BasePart),
    "meta": (META_KEY, PartitionMeta),
}
"""Name of the example -> key and type of the record."""


def checkpoint_log() -> list[EventsRecord]:
    """Return the records at OFFSET and the next one, which the base lacks."""
    run = events_examples()["run"]
    return [
        msgspec.structs.replace(run, batches=run.batches[:2]),
        msgspec.structs.replace(run, batches=run.batches[2:]),
    ]


def checkpoint_examples() -> dict[str, msgspec.Struct]:
    """Return {name: record}: a base after the first batch, and meta as it is at the end."""
    head = new_head("vllm-0", 0)
    head.spread = SPREAD
    at_cut = SourceAtCut("vllm-0", 0, 0.0, 0.0, None, None, base=0, lacks=None)
    encode = msgspec.msgpack.encode
    nothing = {
        META_KEY: encode(PartitionMeta(OFFSET, FORMAT, sources=[at_cut])),
        slot_key("vllm-0", 0, BASE): encode(SourceBase(OFFSET, 0, 0, head)),
    }
    state = PartitionState.restore(0, Worker(), shards=SHARDS, latest=nothing)
    latest: dict[bytes, bytes | None] = {}
    for number, record in enumerate(checkpoint_log()):
        state.apply(OFFSET + number, record)
        if number == 0:
            state.leaves()
        latest.update(state.cut(START + 1.0).checkpoints)
    return {
        name: msgspec.msgpack.decode(latest[key] or b"", type=record) for name, (key, record) in SLOTS.items()
    }


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
