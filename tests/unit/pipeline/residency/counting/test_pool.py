"""A pool against a naive recount that applies one operation at a time."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.residency import histogram
from pipeline.residency.counting.block_table import BlockTable, new_spread
from pipeline.residency.counting.pool import Pool
from pipeline.residency.counting.shared import Adapters, EarlyRoom, Shared
from schemas.events import Stored
from schemas.pool_checkpoints import FlowState, PoolHead
from schemas.residency import CLEARED, EVICTED, FILLED
from tests.support.suite.night import examples


def packed(hashes: list[int]) -> bytes:
    return b"".join(value.to_bytes(8, "big") for value in hashes)


def store(pool: Pool, hashes: list[int], at: float, size: int, *, repeatable: bool = False) -> None:
    event = Stored(packed(hashes), size)
    if not pool.store(event, at, repeatable=repeatable):
        pool.announce(size, several=len(hashes) > 1)
        assert pool.store(event, at, repeatable=repeatable)


def _shared() -> Shared:
    return Shared(Adapters([], most=8), EarlyRoom(0), new_spread(), most_repeats=400_000)


def new_pool() -> Pool:
    head, shared = PoolHead("gpu", 0, FlowState()), _shared()
    return Pool(head, shared, BlockTable(spread=shared.spread))


@dataclass
class NaivePool:
    """One Counter, one operation at a time, nothing clever."""

    copies: Counter[int] = field(default_factory=Counter)
    births: dict[int, float] = field(default_factory=dict)
    sizes: dict[int, list[int]] = field(default_factory=dict)
    counts: Counter[str] = field(default_factory=Counter)
    lifetimes: list[float] = field(default_factory=list)
    changes: list[tuple[int, int, float]] = field(default_factory=list)
    stored_before: list[int] = field(default_factory=list)
    """Tokens stored before each of `changes`."""

    def store(self, hashes: list[int], at: float, size: int, *, may_repeat: bool) -> None:
        if may_repeat and hashes and all(self.copies[value] for value in hashes):
            self.counts["reannounced_blocks"] += len(hashes)
            return
        for value in hashes:
            self.counts["stored_blocks"] += 1
            self.counts["stored_tokens"] += size
            if not self.copies[value]:
                self.counts["filled_blocks"] += 1
                self.births[value] = at
                self.sizes[value] = []
                self.changes.append((value, FILLED, at))
                self.stored_before.append(self.counts["stored_tokens"] - size)
            self.copies[value] += 1
            self.sizes[value].append(size)

    def remove(self, hashes: list[int], at: float) -> None:
        for value in hashes:
            if not self.copies[value]:
                self.counts["unknown_removed_blocks"] += 1
                continue
            self.counts["removed_blocks"] += 1
            self.copies[value] -= 1
            first, *others = self.sizes[value]
            # Among copies of other sizes than the first one's the latest leaves first.
            for index in reversed(range(len(others))):
                if others[index] != first:
                    del self.sizes[value][index + 1]
                    break
            else:
                self.sizes[value].remove(first)
            if not self.copies[value]:
                self.counts["evicted_blocks"] += 1
                self.counts["evicted_tokens"] += first
                self.lifetimes.append(at - self.births[value])
                self.changes.append((value, EVICTED, at))
                self.stored_before.append(self.counts["stored_tokens"])

    def clear(self, at: float) -> None:
        self.counts["cleared_blocks"] += sum(self.copies.values())
        cleared = [(value, CLEARED, at) for value in sorted(self.copies) if self.copies[value]]
        self.changes += cleared
        self.stored_before += [self.counts["stored_tokens"]] * len(cleared)
        self.copies.clear()


def assert_same(pool: Pool, naive: NaivePool) -> None:
    pool.settle()
    for counter in naive.counts:
        assert getattr(pool.head.flow, counter) == naive.counts[counter], counter
    assert sum(pool.head.entries) == sum(naive.copies.values())
    assert sum(pool.head.blocks) == sum(1 for copies in naive.copies.values() if copies)
    by_size = Counter(size for value, copies in naive.copies.items() if copies for size in naive.sizes[value])
    assert dict(zip(pool.head.block_sizes, pool.head.entries, strict=True)) == {
        size: by_size[size] for size in pool.head.block_sizes
    }
    assert pool.head.flow.lifetimes == naive_histogram(naive.lifetimes)


def naive_histogram(lifetimes: list[float]) -> list[int]:
    counts = [0] * histogram.BUCKETS
    for seconds in lifetimes:
        bucket = 0
        while bucket < histogram.BUCKETS - 1 and seconds >= 2.0 ** (bucket - 10):
            bucket += 1
        counts[bucket] += 1
    while counts and not counts[-1]:
        counts.pop()
    return counts


def flat_changes(pool: Pool) -> list[tuple[int, int, float]]:
    rows: list[tuple[int, int, float]] = []
    for part in pool.changes:
        rows += part.rows[["hash", "kind", "time"]].tolist()
    return rows


def in_order_per_hash(rows: list[tuple[int, int, float]]) -> dict[int, list[tuple[int, float]]]:
    courses: dict[int, list[tuple[int, float]]] = {}
    for value, kind, at in rows:
        courses.setdefault(value, []).append((kind, at))
    return courses


few_hashes = st.lists(st.integers(0, 12), max_size=6)
steps = st.lists(
    st.one_of(
        st.tuples(st.just("store"), few_hashes, st.sampled_from([16, 32]), st.booleans()),
        st.tuples(st.just("remove"), few_hashes),
        st.tuples(st.just("clear")),
        st.tuples(st.just("settle")),
    ),
    max_size=40,
)


@examples(150)
@given(steps, st.booleans())
def test_pool_equals_naive_recount(steps: list[tuple], one_size: bool) -> None:
    pool, naive = (
        new_pool(),
        NaivePool(),
    )
    for number, step in enumerate(steps):
        at = float(number)
        match step:
            case ("store", hashes, size, may_repeat):
                size = 16 if one_size else size
                store(pool, hashes, at, size, repeatable=may_repeat)
                naive.store(hashes, at, size, may_repeat=may_repeat)
            case ("remove", hashes):
                pool.remove(packed(hashes), at)
                naive.remove(hashes, at)
            case ("clear",):
                pool.clear(at)
                naive.clear(at)
            case ("settle",):
                pool.settle()
    assert_same(pool, naive)
    assert in_order_per_hash(flat_changes(pool)) == in_order_per_hash(naive.changes)
    if not any(step[0] == "clear" for step in steps):
        assert flat_changes(pool) == naive.changes, "changes keep the order of the stream"
    if not any(step[0] == "store" and step[3] for step in steps):
        stored = [number for part in pool.changes if part.stored_known for number in part.rows["stored"]]
        assert stored == naive.stored_before


@pytest.mark.parametrize("live", [300, 3_000])
def test_long_churn_keeps_memory_and_counts(live: int) -> None:
    pool, naive = (
        new_pool(),
        NaivePool(),
    )
    for number in range(200):
        fresh = [(number * 64 + i) * 0x9E3779B97F4A7C15 % 2**64 for i in range(64)]
        old = [((number - live // 64) * 64 + i) * 0x9E3779B97F4A7C15 % 2**64 for i in range(64)]
        store(pool, fresh, float(number), 16)
        naive.store(fresh, float(number), 16, may_repeat=False)
        if number >= live // 64:
            pool.remove(packed(old), float(number))
            naive.remove(old, float(number))
    assert_same(pool, naive)
    assert isinstance(pool.copies, BlockTable)
    assert pool.copies.entries.nbytes / sum(pool.head.blocks) < 120
