"""Example records of the checkpoint topic: what the replica agent saves while it reads the example run.

They belong together: base, delta and head restore the state at the offset in `meta`.
"""

from __future__ import annotations

import msgspec

from pipeline.generated.examples.blocks import START
from pipeline.generated.examples.events import events_examples
from pipeline.residency.partition import PartitionState
from schemas.checkpoints import BASE, HEAD, META_KEY, PartitionMeta, PoolsRecord, SourceHead, slot_key
from schemas.settings import Worker

SHARDS = 8
OFFSET = 811
"""Of the example run in its partition."""

SLOTS: dict[str, tuple[bytes, type[msgspec.Struct]]] = {
    "head": (slot_key("vllm-0", 0, HEAD), SourceHead),
    "base": (slot_key("vllm-0", 0, BASE), PoolsRecord),
    "delta": (slot_key("vllm-0", 0, 1), PoolsRecord),
    "meta": (META_KEY, PartitionMeta),
}
"""Name of the example -> key and type of the record."""


def checkpoint_examples() -> dict[str, msgspec.Struct]:
    """Return {name: record}: base after the first batch, then delta, head and meta as they are at the end."""
    run = events_examples()["run"]
    state = PartitionState(0, Worker(), shards=SHARDS)
    latest: dict[bytes, bytes] = {}
    for number, batches in enumerate((run.batches[:2], run.batches[2:])):
        state.apply(OFFSET + number, msgspec.structs.replace(run, batches=batches))
        latest.update(state.cut(START + 1.0).checkpoints)
    return {name: msgspec.msgpack.decode(latest[key], type=record) for name, (key, record) in SLOTS.items()}
