"""Simulated replicas of which some draw a hash seed of their own, as engines without PYTHONHASHSEED."""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache

from pipeline.fleet.causes import CAUSES
from pipeline.fleet.state import FleetState
from pipeline.traces.trace import TraceRequest
from schemas.fleet_rows import FillsRow
from schemas.setting_rows import HashGroupRow
from schemas.settings import Fleet
from tests.support.inputs.traced import events, residency

REPLICAS = 4
BUDGET = 150
"""Blocks of a replica: conversations are evicted and come back."""
AFTER = 32
NAMES = {f"r{number}" for number in range(REPLICAS)}


@dataclass
class Told:
    """What the fleet agent says of the replicas."""

    hashes: dict[str, HashGroupRow] = field(default_factory=dict)
    causes: defaultdict[str, Counter[str]] = field(default_factory=lambda: defaultdict(Counter))

    @property
    def alone(self) -> set[str]:
        return {name for name, row in self.hashes.items() if row.alone}


@cache
def requests() -> list[TraceRequest]:
    """Return turns of conversations that all begin with the same system prompt."""
    rng = random.Random(7)
    turns: Counter[int] = Counter()
    found = []
    for number in range(1200):
        talk = rng.randrange(120)
        turns[talk] = min(turns[talk] + 1, 12)
        ids = (1, *(1000 * (talk + 1) + turn for turn in range(turns[talk])))
        found.append(TraceRequest(2.0 * number, 512 * len(ids), ids))
    return found


def told(hash_seeds: Mapping[int, str], after: int = AFTER) -> Told:
    """Return what is said after all requests, dealt round-robin."""
    state, said = FleetState(0, Fleet(compare_after=after), carry_seconds=0.0), Told()
    fills: dict[tuple[str, object], FillsRow] = {}
    for offset, record in enumerate(residency(events(requests(), REPLICAS, BUDGET, hash_seeds=hash_seeds))):
        state.apply(offset, record)
        for row in state.cut(0.0).rows:
            if isinstance(row, FillsRow):
                fills[row.replica, row.window] = row
            elif isinstance(row, HashGroupRow):
                said.hashes[row.replica] = row
    for row in fills.values():
        for cause in CAUSES:
            said.causes[row.replica][cause] += getattr(row, f"{cause}_blocks")
    return said


def test_replicas_of_one_seed_are_alike_and_none_is_doubted() -> None:
    said = told({})
    assert {name: row.alike for name, row in said.hashes.items()} == dict.fromkeys(NAMES, REPLICAS - 1)
    assert not said.alone
    assert not any(causes["unknown"] for causes in said.causes.values())


def test_the_replica_with_another_seed_is_found_and_its_fills_stop_being_cold() -> None:
    said, believed = told({3: "drawn"}), told({3: "drawn"}, after=0)
    assert {name: row.alike for name, row in said.hashes.items()} == {"r0": 2, "r1": 2, "r2": 2, "r3": 0}
    assert said.alone == {"r3"}
    assert not believed.alone
    odd, took = said.causes["r3"], believed.causes["r3"]
    assert not odd["peer"] + odd["peer_and_evicted"] + odd["evicted_elsewhere"]
    assert odd["unknown"] > odd["cold"] > 0, "cold until it was found, unknown from then on"
    assert odd["cold"] + odd["unknown"] == took["cold"]
    assert {cause: odd[cause] for cause in ("evicted", "cleared")} == {
        cause: took[cause] for cause in ("evicted", "cleared")
    }, "what it lost itself it still knows"
    for name in NAMES - {"r3"}:
        assert said.causes[name] == believed.causes[name]


def test_when_every_replica_draws_a_seed_none_has_peers() -> None:
    said = told({number: f"drawn {number}" for number in range(REPLICAS)})
    assert said.alone == NAMES
    assert len({row.hash_group for row in said.hashes.values()}) == REPLICAS
    for causes in said.causes.values():
        assert not causes["peer"]
        assert causes["unknown"] > 0
