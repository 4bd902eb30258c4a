"""Hot prefixes: equal to the recount while they are few, within the stated bound beyond, the same again."""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from pipeline.fleet.kernel import refills
from pipeline.fleet.kernel.tables import BLOCK
from pipeline.fleet.prefixes.shared import SHARED, shared_prefixes
from pipeline.verify.fleet.recount import FleetRecount
from pipeline.verify.fleet.shown import Hot, Prefix
from pipeline.verify.times import number_of
from schemas.fleet_rows import HotPrefixRow
from schemas.residency import ResidencyRecord
from schemas.settings import Fleet
from tests.support.fleet_recount import compared, rows_of
from tests.support.inputs.fleet_walks import walked
from tests.support.suite.night import first_by_day

COUNTERS = 2


def walk(seed: int) -> list[ResidencyRecord]:
    """Longer than those that hypothesis likes, and denser."""
    rng = random.Random(seed)
    whats = ["block"] * 12 + ["again", "stray", "clear", "restart", "trust", "idle", "cut", "cut"]
    pools = [("gpu", 0)] * 5 + [("gpu", 1), ("cpu", 0), ("disk", 0), ("fs", 0), ("LMCache", 0)]
    return walked(
        [
            (
                rng.randrange(4),
                rng.choice(whats),
                rng.randrange(8),
                rng.choice(pools),
                rng.uniform(-1.0, 8.0),
            )
            for _ in range(200)
        ]
    ).records


def hot_rows(records: list[ResidencyRecord], fleet: Fleet, **how: Any) -> list[HotPrefixRow]:
    return [row for row in rows_of(records, fleet, **how) if isinstance(row, HotPrefixRow)]


def everything(records: list[ResidencyRecord], fleet: Fleet) -> dict[int, dict[Prefix, Hot]]:
    """Figures of all prefixes, by window."""
    found: dict[int, dict[Prefix, Hot]] = {}
    recount = FleetRecount(fleet)
    recount.on_window_over = lambda window, _: found.update({window: recount.prefixes.take()})
    for number, record in enumerate(records):
        recount.apply(number, record)
    return found


def prefix_of(row: HotPrefixRow) -> Prefix:
    return Prefix(row.hash_domain, row.model, row.group_idx, row.lora, row.prefix)


@pytest.mark.parametrize("ghosts", [2_000_000, 2])
@pytest.mark.parametrize("seed", first_by_day(range(8)))
def test_long_walks_give_the_rows_of_the_recount(ghosts: int, seed: int) -> None:
    fleet = Fleet(horizon_seconds=60.0, max_ghosts=ghosts)
    rng, records = random.Random(seed), walk(seed)
    killed = tuple(rng.randrange(60) for _ in range(3))
    rows = rows_of(records, fleet, every=rng.randint(1, 9), killed=killed)
    findings = compared(records, rows, fleet)
    assert findings.equal, findings.kept[:3]
    hot = [row for row in rows if isinstance(row, HotPrefixRow)]
    assert any(row.duplicated_tokens for row in hot)
    assert any(row.refilled_tokens for row in hot)
    assert {row.lora for row in hot} == {"", "sql", "poems"}
    assert not any(row.refilled_tokens_missing for row in hot)


@pytest.mark.parametrize("seed", first_by_day(range(10)))
def test_only_the_first_of_each_hash_domain_are_listed(seed: int) -> None:
    fleet = Fleet(hot_prefixes=1)
    records = walk(seed)
    assert compared(records, rows_of(records, fleet), fleet).equal
    listed: defaultdict[Any, list[HotPrefixRow]] = defaultdict(list)
    for row in hot_rows(records, fleet):
        listed[number_of(row.window), row.hash_domain, row.group_idx].append(row)
    for window, figures in everything(records, fleet).items():
        for domain, group in {prefix[::2][:2] for prefix in figures}:
            rows = listed.pop((window, domain, group))
            assert len(rows) <= 2
            there = [hot for each, hot in figures.items() if each[::2][:2] == (domain, group)]
            for name in ("duplicated_tokens", "refilled_tokens"):
                assert max(getattr(row, name) for row in rows) == max(getattr(hot, name) for hot in there)
    assert not listed


@pytest.mark.parametrize("seeds", first_by_day([range(2), range(2, 10)]), ids=["two", "more"])
def test_more_prefixes_than_counters_cost_no_more_than_stated(
    seeds: Sequence[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(refills, "MOST_REFILLS", COUNTERS)
    fleet = Fleet()
    lossy = 0
    for seed in seeds:
        rng, records = random.Random(seed), walk(seed)
        rows = hot_rows(records, fleet)
        killed = tuple(rng.randrange(60) for _ in range(3))
        assert hot_rows(records, fleet, every=3, killed=killed) == rows, "as if nothing had been lost"
        wrong = [
            each.kind for each in compared(records, rows, fleet).kept if each.table == HotPrefixRow.TABLE
        ]
        assert {*wrong} <= {"missing"}
        real = everything(records, fleet)
        for row in rows:
            figures = real[number_of(row.window)]
            tokens, missing = figures[prefix_of(row)].refilled_tokens, row.refilled_tokens_missing
            assert row.refilled_tokens <= tokens <= row.refilled_tokens + missing
            assert missing * (COUNTERS // 2) <= sum(hot.refilled_tokens for hot in figures.values())
            lossy += missing > 0
    assert lossy


@pytest.mark.parametrize("largest", [1024, 8])
def test_many_shared_prefixes_are_exact_or_below_the_bound(largest: int) -> None:
    rng = np.random.default_rng(largest)
    blocks = np.zeros(1 << 14, BLOCK)
    taken = rng.permutation(len(blocks))[:9000]
    blocks["key"][taken] = rng.integers(1, 1 << 63, len(taken))
    blocks["size"] = 16
    blocks["owners"][taken] = rng.integers(0, 5, len(taken))
    blocks["received"][taken] = rng.integers(0, 1 + blocks["owners"][taken])
    blocks["root"][taken] = rng.zipf(1.3, len(taken)) % 5000
    blocks["lineage"][taken] = rng.integers(0, 2, len(taken))
    blocks["depth"] = rng.integers(1, 100, len(blocks))
    real: Counter[tuple[int, int]] = Counter()
    for root, lineage, owners, received in blocks[["root", "lineage", "owners", "received"]][taken].tolist():
        # Of what both hold that receive and that do not, one copy is needed on either side.
        needed = (received > 0) + (received < owners)
        if root and owners > needed:
            real[root, lineage] += 16 * (owners - needed)
    asked = np.zeros(1, SHARED)
    asked["root"] = 4999
    found, bound = shared_prefixes(blocks, asked, sums=1 << 12, largest=largest, prefixes=1 << 10)
    listed = {(int(row["root"]), int(row["lineage"])): int(row["duplicated"]) for row in found}
    assert len(listed) <= 1 << 10
    assert (4999, 0) in listed
    assert all(real[prefix] == tokens for prefix, tokens in listed.items())
    assert all(tokens <= bound for prefix, tokens in real.items() if prefix not in listed)
    if largest == 8:
        assert 0 < bound <= real.total() / largest
    again, _ = shared_prefixes(
        rng.permutation(blocks), asked, sums=1 << 12, largest=largest, prefixes=1 << 10
    )
    assert np.sort(again).tolist() == np.sort(found).tolist()
