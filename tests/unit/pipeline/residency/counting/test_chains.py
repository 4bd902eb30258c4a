"""Residency records say of every fill where its chain begins, how deep it is, and its LoRA."""

from __future__ import annotations

import random
import struct

import pytest

from pipeline.residency.cut import Cut
from schemas.events import Event, Removed, Stored
from schemas.residency import FILLS
from tests.support.inputs.event_records import batch, record, sent
from tests.support.inputs.packed import packed
from tests.support.replica_agent import ReplicaAgent, changes_of

ROOTS = 6


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
            return Removed(packed(gone))
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
        before = packed(parent) if parent is not None else None
        return Stored(packed(*blocks), 16, len(blocks) * 16, before, lora=lora or None)


def fills_of(cut: Cut) -> list[tuple[int, int, int, str]]:
    found = []
    for part in changes_of(cut):
        blocks = struct.unpack(f">{len(part.kinds)}Q", part.hashes)
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
    agent, found = ReplicaAgent(shards=4), []
    for number in range(601):
        at = 1e9 + number
        agent.apply(sent(number, at, engine.event(), engine.event()))
        if number % 3 == 0:
            look = agent.cut if number % 5 else agent.moved
            found += fills_of(look(at))
    assert sorted(found) == sorted(engine.fills)
    known = [fill for fill in engine.fills if fill[1]]
    assert len(known) < len(engine.fills), "some chains began before we looked"
    assert {lora for *_, lora in known} == {"", "sql", "adapter 4", "adapter 5"}
    assert max(depth for _, _, depth, _ in known) > 6


def test_offload_tiers_say_nothing_of_chains() -> None:
    agent = ReplicaAgent()
    agent.apply(record(batch(0, 1e9, Stored(packed(1, 2), 16, 32, medium="cpu"))))
    assert fills_of(agent.cut(1e9)) == [(1, 0, 0, ""), (2, 0, 0, "")]
