"""Example records of the fleet agent's checkpoint topic: a base made from the residency examples."""

from __future__ import annotations

import msgspec

from pipeline.fleet.snapshot import MAX_SECONDS
from pipeline.fleet.state import FleetState
from pipeline.generated.examples.blocks import START
from pipeline.generated.examples.residency import residency_examples
from schemas.fleet_checkpoints import HEAD_KEY, FleetHead, FleetPart, part_key
from schemas.settings import Fleet

SHARD = 4
OFFSET = 4711
TABLES = ("blocks", "pairs")
"""Those that make up nearly all of a base."""


def fleet_checkpoint_examples() -> dict[str, msgspec.Struct]:
    """Return {name: record}: the head of a base, and its parts of TABLES."""
    state = FleetState(SHARD, Fleet(), carry_seconds=0.0)
    state.cut(START)
    for number, record in enumerate(residency_examples().values()):
        state.apply(OFFSET + 2 * number, record)
    latest = dict(state.cut(START + MAX_SECONDS).checkpoints)
    head = msgspec.msgpack.decode(latest[HEAD_KEY], type=FleetHead)
    parts = [
        msgspec.msgpack.decode(latest[part_key(head.epoch, number)], type=FleetPart)
        for number in range(head.parts)
    ]
    return {"head": head, **{part.table: part for part in parts if part.table in TABLES}}
