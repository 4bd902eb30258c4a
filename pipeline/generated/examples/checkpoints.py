"""Example records of the checkpoint topic: what the replica agent saves while it reads the example run.

They belong together: base, delta and head restore the state at the offset in `meta`.
"""

from __future__ import annotations

import msgspec

from pipeline.generated.examples.blocks import START
from pipeline.generated.examples.events import events_examples
from pipeline.residency.partition import PartitionState
from schemas.checkpoints import (
    BASE,
    HEAD,
    META_KEY,
    PartitionMeta,
    PoolEntries,
    PoolsRecord,
    SourceHead,
    slot_key,
)
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
    records = {
        name: msgspec.msgpack.decode(latest[key], type=record) for name, (key, record) in SLOTS.items()
    }
    for record in records.values():
        if isinstance(record, PoolsRecord):
            record.pools = [_in_order_of_hashes(part) for part in record.pools]
    return records


def _in_order_of_hashes(part: PoolEntries) -> PoolEntries:
    """Return the same entries; their order says nothing and is another one in every process."""
    count = len(part.block_sizes) // 4
    order = sorted(range(count), key=lambda at: part.hashes[8 * at : 8 * at + 8])

    def arranged(column: bytes) -> bytes:
        width = len(column) // count
        return b"".join(column[at * width : (at + 1) * width] for at in order)

    return msgspec.structs.replace(
        part,
        hashes=arranged(part.hashes),
        copies=arranged(part.copies),
        births=arranged(part.births),
        block_sizes=arranged(part.block_sizes),
        roots=arranged(part.roots),
        depths=arranged(part.depths),
    )
