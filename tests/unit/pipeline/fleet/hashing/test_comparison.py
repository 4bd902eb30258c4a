"""Sources that hash unlike the others are found, and taken back when they turn out to be alike."""

from __future__ import annotations

import struct

from pipeline.fleet.state import FleetState
from schemas.fleet_rows import FillsRow
from schemas.residency import FILLED, ResidencyChanges, ResidencyRecord, SourceChanges
from schemas.setting_rows import HashGroupRow
from schemas.settings import Fleet

AFTER = 4
START = 1_000_000.0


class PromptedReplicas:
    """Replicas that are asked for the same prompts, second by second: one common first block, new ends."""

    def __init__(self, seeds: dict[str, int]) -> None:
        self.state = FleetState(0, Fleet(compare_after=AFTER), carry_seconds=0.0)
        self.seeds = seeds
        self.incarnations = dict.fromkeys(seeds, 1)
        self.groups: dict[str, HashGroupRow] = {}
        self.causes: dict[str, dict[str, int]] = {}
        self.second = 0

    def run(self, seconds: int) -> None:
        """Every replica fills a block of its own below the common first block, each second."""
        self.causes = {name: {"cold": 0, "unknown": 0} for name in self.seeds}
        for _ in range(seconds):
            self.second += 10
            said = [self.filled(number, name) for number, name in enumerate(self.seeds)]
            self.state.apply(self.second, ResidencyRecord(0, 0, 0, said))
            rows = self.state.cut(0.0).rows
            self.groups |= {row.replica: row for row in rows if isinstance(row, HashGroupRow)}
            for row in rows:
                if isinstance(row, FillsRow) and row.window.timestamp() == START + self.second:
                    self.causes[row.replica]["cold"] += row.cold_blocks
                    self.causes[row.replica]["unknown"] += row.unknown_blocks

    def filled(self, number: int, name: str, domain: str = "d") -> SourceChanges:
        root = 77 + (self.seeds[name] << 40) + self.seeds[name]
        block = root + self.second * 64 + number
        changes = ResidencyChanges(
            "gpu",
            0,
            struct.pack(">Q", block),
            bytes([FILLED]),
            struct.pack("<d", START + self.second),
            struct.pack("<I", 16),
            roots=struct.pack(">Q", root),
            depths=struct.pack("<H", 2),
        )
        return SourceChanges(name, "m", domain, 0, self.incarnations[name], "complete", [changes])

    def restart(self, name: str, seed: int) -> None:
        self.incarnations[name] += 1
        self.seeds[name] = seed


def test_a_replica_with_a_seed_of_its_own_is_found_and_nothing_of_it_is_called_cold() -> None:
    engines = PromptedReplicas({"a": 1, "b": 1, "odd": 2})
    engines.run(AFTER + 1)
    assert {name: (row.hash_group, row.alike) for name, row in engines.groups.items()} == {
        "a": ("a/0@1", 1),
        "b": ("a/0@1", 1),
        "odd": ("odd/0@1", 0),
    }
    engines.run(10)
    assert {name: row.alone for name, row in engines.groups.items()} == {"a": False, "b": False, "odd": True}
    assert engines.causes == {
        "a": {"cold": 10, "unknown": 0},
        "b": {"cold": 10, "unknown": 0},
        "odd": {"cold": 0, "unknown": 10},
    }


def test_it_stays_so_through_a_restart_until_it_shares_a_first_block() -> None:
    engines = PromptedReplicas({"a": 1, "b": 1, "odd": 2})
    engines.run(20)
    engines.restart("odd", 3)
    engines.run(5)
    assert engines.causes["odd"] == {"cold": 0, "unknown": 5}
    engines.restart("odd", 1)
    engines.run(5)
    assert (engines.groups["odd"].hash_group, engines.groups["odd"].alike) == ("a/0@1", 2)
    assert not engines.groups["odd"].alone
    assert engines.causes["odd"] == {"cold": 4, "unknown": 1}


def test_whoever_is_left_by_its_only_match_has_to_be_found_alone_anew() -> None:
    engines = PromptedReplicas({"a": 1, "b": 1})
    engines.run(20)
    engines.restart("b", 2)
    engines.run(AFTER)
    assert engines.causes["a"] == {"cold": AFTER, "unknown": 0}
    engines.run(5)
    assert {name: row.alone for name, row in engines.groups.items()} == {"a": True, "b": True}


def test_a_single_replica_and_one_that_nothing_comes_back_to_prove_nothing() -> None:
    engines = PromptedReplicas({"a": 1})
    engines.run(20)
    assert not engines.groups["a"].alone
    never = PromptedReplicas({"a": 1, "b": 2})
    never.state = FleetState(0, Fleet(compare_after=0), carry_seconds=0.0)
    never.run(20)
    assert not any(row.alone for row in never.groups.values())


def test_models_that_hash_the_same_prompts_alike_do_not_hide_each_others_matches() -> None:
    engines = PromptedReplicas({f"{name}-{domain}": 1 for name in "ab" for domain in "xdy"})
    for second in range(20):
        for number, name in enumerate("ab"):
            engines.second = 10 * second + number
            # Each partition of the log has a replica of this model, and another one of each of two others.
            said = [engines.filled(number, f"{name}-{domain}", domain) for domain in ("x", "d", "y")]
            engines.state.apply(engines.second, ResidencyRecord(0, 0, number, said))
    rows = [row for row in engines.state.cut(0.0).rows if isinstance(row, HashGroupRow)]
    assert {(row.hash_domain, row.alike, row.alone) for row in rows} == {
        (domain, 1, False) for domain in "xdy"
    }
