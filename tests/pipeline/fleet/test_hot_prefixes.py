"""Hot prefixes: equal to brute force while they are few, within the stated bound beyond, the same again."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.fleet import refills
from pipeline.fleet.index import BLOCK
from pipeline.fleet.shared_prefixes import SHARED, shared_prefixes
from schemas.settings import Fleet
from tests.pipeline.fleet.comparing import fills, newest, oracle_fills, prefixes
from tests.pipeline.fleet.oracle import Oracle
from tests.pipeline.fleet.test_against_oracle import rows_of
from tests.pipeline.fleet.walks import records_of, walks

COUNTERS = 2
killed = st.lists(st.integers(0, 60), max_size=3).map(tuple)


def expected(records: Any, fleet: Fleet) -> dict[int, dict[Any, dict[str, int]]]:
    oracle = Oracle(fleet.horizon_seconds, fleet.max_ghosts)
    for record in records:
        oracle.apply(record)
    return {window: figures for window, figures in oracle.prefixes.items() if figures}


@settings(max_examples=200, deadline=None)
@given(walks, st.sampled_from([2_000_000, 3]), st.integers(1, 9), killed)
def test_few_prefixes_are_exact(walk: Any, ghosts: int, every: int, killed: tuple[int, ...]) -> None:
    records = records_of(walk)
    fleet = Fleet(horizon_seconds=60.0, max_ghosts=ghosts)
    rows = newest(rows_of(records, fleet, every=every, killed=killed))["hot_prefixes_10s"]
    assert prefixes(rows) == expected(records, fleet)
    assert all(row.refilled_tokens_missing == 0 for row in rows.values())


@settings(max_examples=100, deadline=None)
@given(walks, killed)
def test_only_the_first_of_each_hash_domain_are_listed(walk: Any, killed: tuple[int, ...]) -> None:
    records = records_of(walk)
    fleet = Fleet(hot_prefixes=1)
    found = prefixes(newest(rows_of(records, fleet, killed=killed))["hot_prefixes_10s"])
    every = expected(records, fleet)
    assert found.keys() == every.keys()
    for window, of_window in found.items():
        for domain, group in {prefix[:2] for prefix in every[window]}:
            there = {key: each for key, each in every[window].items() if key[:2] == (domain, group)}
            listed = {key: each for key, each in of_window.items() if key[:2] == (domain, group)}
            assert len(listed) <= 2
            for name in ("duplicated_tokens", "refilled_tokens"):
                most = max(each.get(name, 0) for each in there.values())
                assert most == max(each.get(name, 0) for each in listed.values())
            for key, each in listed.items():
                assert each.get("duplicated_tokens") == there[key].get("duplicated_tokens")


@settings(max_examples=100, deadline=None)
@given(walks, killed)
def test_more_prefixes_than_counters_cost_no_more_than_stated(walk: Any, killed: tuple[int, ...]) -> None:
    records = records_of(walk)
    fleet = Fleet()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(refills, "COUNTERS", COUNTERS)
        undisturbed = newest(rows_of(records, fleet))["hot_prefixes_10s"]
        assert newest(rows_of(records, fleet, every=3, killed=killed))["hot_prefixes_10s"] == undisturbed
    every = expected(records, fleet)
    for (window, domain, _, lora, root, group), row in undisturbed.items():
        real = every[window][domain, group, lora, root].get("refilled_tokens", 0)
        assert row.refilled_tokens <= real <= row.refilled_tokens + row.refilled_tokens_missing
        everything = sum(each.get("refilled_tokens", 0) for each in every[window].values())
        assert row.refilled_tokens_missing * COUNTERS // 2 <= everything


@pytest.mark.parametrize("largest", [1024, 8])
def test_many_shared_prefixes_are_exact_or_below_the_bound(largest: int) -> None:
    rng = np.random.default_rng(largest)
    blocks = np.zeros(1 << 14, BLOCK)
    taken = rng.permutation(len(blocks))[:9000]
    blocks["key"][taken] = rng.integers(1, 1 << 63, len(taken))
    blocks["size"] = 16
    blocks["owners"][taken] = rng.integers(0, 5, len(taken))
    blocks["root"][taken] = rng.zipf(1.3, len(taken)) % 5000
    blocks["lineage"][taken] = rng.integers(0, 2, len(taken))
    blocks["depth"] = rng.integers(1, 100, len(blocks))
    real: Counter[tuple[int, int]] = Counter()
    for block in blocks[taken].tolist():
        row = dict(zip(BLOCK.names or (), block, strict=True))
        if row["root"] and row["owners"] > 1:
            real[row["root"], row["lineage"]] += 16 * (row["owners"] - 1)
    asked = np.zeros(1, SHARED)
    asked["root"] = 4999
    found, bound = shared_prefixes(blocks, asked, sums=1 << 12, largest=largest, prefixes=1 << 10)
    listed = {(int(row["root"]), int(row["lineage"])): int(row["duplicated"]) for row in found}
    assert listed.pop((4999, 0)) == real[4999, 0]
    assert len(listed) <= 1 << 10
    assert all(real[prefix] == tokens for prefix, tokens in listed.items())
    assert all(tokens <= bound for prefix, tokens in real.items() if prefix not in listed)
    if largest == 8:
        assert 0 < bound <= real.total() / largest
    shuffled = rng.permutation(blocks)
    again, _ = shared_prefixes(shuffled, asked, sums=1 << 12, largest=largest, prefixes=1 << 10)
    assert np.sort(again).tolist() == np.sort(found).tolist()


@pytest.mark.parametrize("ghosts", [2_000_000, 2])
def test_long_walks_are_exact(ghosts: int) -> None:
    rng = random.Random(ghosts)
    whats = ["block"] * 12 + ["again", "stray", "clear", "restart", "trust", "idle", "cut", "cut"]
    pools = [("gpu", 0)] * 5 + [("gpu", 1), ("cpu", 0), ("disk", 0), ("fs", 0), ("LMCache", 0)]
    fleet = Fleet(horizon_seconds=60.0, max_ghosts=ghosts)
    for _ in range(10):
        walk = [
            (
                rng.randrange(4),
                rng.choice(whats),
                rng.randrange(8),
                rng.choice(pools),
                rng.uniform(-1.0, 8.0),
            )
            for _ in range(150)
        ]
        records = records_of(walk)
        oracle = Oracle(fleet.horizon_seconds, ghosts)
        for record in records:
            oracle.apply(record)
        lost = tuple(rng.randrange(60) for _ in range(3))
        rows = newest(rows_of(records, fleet, every=rng.randint(1, 9), killed=lost))
        assert fills(rows["fills_10s"]) == oracle_fills(oracle)
        found = prefixes(rows["hot_prefixes_10s"])
        assert found == {window: figures for window, figures in oracle.prefixes.items() if figures}
        for name in ("duplicated_tokens", "refilled_tokens"):
            assert any(name in each for figures in found.values() for each in figures.values())
