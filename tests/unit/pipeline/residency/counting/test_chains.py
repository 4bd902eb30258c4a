"""Residency records say of every fill where its chain begins, how deep it is, and its LoRA."""

from __future__ import annotations

import random
import struct
from typing import Any

import msgspec
import pytest

from pipeline.residency.partition import PartitionState
from schemas.events import Batch, Event, EventsRecord, Opened, Removed, Stored
from schemas.residency import FILLS, ResidencyRecord
from schemas.settings import Worker

SHARDS = 4
ROOTS = 6


def pack_hashes(blocks: list[int]) -> bytes:
    return struct.pack(f">{len(blocks)}Q", *blocks)


def block_at(root: int, depth: int) -> int:
    return ((root * 1000 + depth + 1) * 0x9E3779B97F4A7C15) % 2**64


class ChainedEngine:
    """Stores pieces of chains and removes blocks; knows what is resident and where it belongs."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.resident: dict[int, tuple[int, int]] = {}
        self.fills: list[tuple[int, int, int, str]] = []
        """(block, root, depth, LoRA) of each, zeros where the engine did not say what came before."""

    def event(self) -> Event:
        root = self.rng.randrange(ROOTS)
        lora = "sql" if root == 1 else f"adapter {root}" if root > 3 else ""
        if self.resident and self.rng.random() < 0.3:
            gone = self.rng.choice(list(self.resident))
            del self.resident[gone]
            return Removed(pack_hashes([gone]))
        start, length = self.rng.choice([0, 0, 1, 4, 5]), self.rng.randint(1, 6)
        blocks = [block_at(root, depth) for depth in range(start, start + length)]
        parent = block_at(root, start - 1) if start else None
        where = (blocks[0], 0) if parent is None else self.resident.get(parent, (0, 0))
        # A copy of a resident block is no fill; walks with copies are those of the table's own test.
        if any(block in self.resident for block in blocks):
            return Stored(b"", 16)
        for place, block in enumerate(blocks, 1):
            self.resident[block] = (where[0], where[1] + place if where[0] else 0)
            self.fills.append((block, *self.resident[block], lora if where[0] else ""))
        packed = pack_hashes([parent]) if parent is not None else None
        return Stored(pack_hashes(blocks), 16, len(blocks) * 16, packed, lora=lora or None)


def fills_of(record: ResidencyRecord) -> list[tuple[int, int, int, str]]:
    found = []
    for source in record.sources:
        for part in source.changes:
            count = len(part.kinds)
            blocks = struct.unpack(f">{count}Q", part.hashes)
            filled = [block for block, kind in zip(blocks, part.kinds, strict=True) if kind in FILLS]
            count = len(filled)
            roots = struct.unpack(f">{count}Q", part.roots or bytes(8 * count))
            depths = struct.unpack(f"<{count}H", part.depths or bytes(2 * count))
            codes = struct.unpack(f"<{count}H", part.lora_codes or bytes(2 * count))
            names = [["", *part.loras][code] for code in codes]
            for block, root, depth, name in zip(filled, roots, depths, names, strict=True):
                found.append((block, root, depth, name if root else ""))
    return found


@pytest.mark.parametrize("seed", range(3))
def test_fills_say_where_they_belong(seed: int) -> None:
    engine = ChainedEngine(seed)
    state = PartitionState(0, Worker(), shards=SHARDS)
    state.apply(0, EventsRecord("r", "m", "d", 0, 1, [Batch(None, 1e9, 1e9, [Opened(0, True)])]))
    saved: dict[bytes, bytes] = {}
    found: list[Any] = []
    for number in range(601):
        at = 1e9 + number
        batch = Batch(number, at, at, [engine.event(), engine.event()])
        state.apply(number + 1, EventsRecord("r", "m", "d", 0, 1, [batch]))
        if number % 3:
            continue
        if number % 5 == 0:
            state.leaves()
        cut = state.cut(at)
        saved.update(cut.checkpoints)
        for _, _, value in cut.residency:
            found += fills_of(msgspec.msgpack.decode(value, type=ResidencyRecord))
        if number % 5 == 0:
            state = PartitionState.restore(0, Worker(), shards=SHARDS, latest=saved)
    assert sorted(found) == sorted(engine.fills)
    known = [fill for fill in engine.fills if fill[1]]
    assert len(known) < len(engine.fills), "some chains began before we looked"
    assert {lora for *_, lora in known} == {"", "sql", "adapter 4", "adapter 5"}
    assert max(depth for _, _, depth, _ in known) > 6


def test_offload_tiers_say_nothing_of_chains() -> None:
    state = PartitionState(0, Worker(), shards=1)
    events: list[Event] = [Stored(pack_hashes([1, 2]), 16, 32, medium="cpu")]
    state.apply(0, EventsRecord("r", "m", "d", 0, 1, [Batch(0, 1e9, 1e9, events)]))
    ((_, _, value),) = state.cut(1e9).residency
    assert fills_of(msgspec.msgpack.decode(value, type=ResidencyRecord)) == [(1, 0, 0, ""), (2, 0, 0, "")]
