"""Changes distributed over the shards, against a plain loop over them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.residency import changes as module
from pipeline.residency.changes import CHANGE, Changes
from pipeline.residency.sharding.by_shard import by_shard
from schemas.residency import CLEARED, EVICTED, FILLED, FILLS, GENERATED, ResidencyChanges

LORAS = ("one", "two", "three")

hashes = st.integers(0, 2**64 - 1) | st.sampled_from([0, 2**32 - 1, 2**32, 2**63, 2**64 - 1])
chains = st.tuples(hashes, st.integers(0, 2**16 - 1), st.integers(0, len(LORAS)))
rows = st.lists(
    st.tuples(
        hashes, st.sampled_from([FILLED, GENERATED, EVICTED, CLEARED]), st.integers(0, 2**32 - 1), chains
    ),
    min_size=1,
    max_size=60,
)
pools = st.lists(st.tuples(st.sampled_from([("gpu", 0), ("gpu", 1), ("cpu", 0)]), rows), max_size=4)


def changes_of(pool: tuple[str, int], some: list[Any], before: int) -> Changes:
    """Return the changes of a pool, each of which stores as many tokens as its block has."""
    filled = np.zeros(len(some), CHANGE)
    for number, (block_hash, kind, block_size, (root, depth, adapter)) in enumerate(some):
        row = filled[number]
        row["hash"], row["kind"], row["block_size"] = block_hash, kind, block_size
        row["time"], row["stored"] = 1_000.0 + number, before
        before += block_size
        row["root"], row["depth"], row["adapter"] = root, depth, adapter
    return Changes(*pool, filled, loras=LORAS)


def told(parts: list[ResidencyChanges]) -> list[tuple[Any, ...]]:
    """Return every change as plain values, and of fills their chain."""
    found: list[tuple[Any, ...]] = []
    for part in parts:
        block_hashes = np.frombuffer(part.hashes, ">u8").tolist()
        times = np.frombuffer(part.times, "<f8").tolist()
        sizes = np.frombuffer(part.block_sizes, "<u4").tolist()
        stored = (np.frombuffer(part.stored, "<u4").astype(np.int64) + part.stored_before).tolist()
        roots, depths = np.frombuffer(part.roots, ">u8").tolist(), np.frombuffer(part.depths, "<u2").tolist()
        codes = np.frombuffer(part.lora_codes, "<u2").tolist() or [0] * len(roots)
        fill = 0
        for number, kind in enumerate(part.kinds):
            chain: tuple[Any, ...] = ()
            if kind in FILLS and roots:
                lora = part.loras[codes[fill] - 1] if codes[fill] else ""
                chain = (roots[fill], depths[fill], lora)
                fill += 1
            pool = (part.medium, part.group_idx)
            found.append(
                (pool, block_hashes[number], kind, times[number], sizes[number], stored[number], chain)
            )
        assert fill == len(roots)
    return found


def parts_of(changes: list[Changes], shards: int, most: int) -> dict[int, list[ResidencyChanges]]:
    """Return the parts of each shard."""
    found: dict[int, list[ResidencyChanges]] = {}
    for shard, part in by_shard(changes, shards, most=most):
        found.setdefault(shard, []).append(part)
    return found


def pieces_of(changes: list[Any], most: int) -> int:
    """Return how many parts these changes need: of `most` each, and of tokens that 32 bits can say."""
    pieces = taken = first = 0
    for _, _, _, _, _, stored, _ in changes:
        if not taken or taken == most or stored - first >= 1 << 32:
            pieces, taken, first = pieces + 1, 0, stored
        taken += 1
    return pieces


@given(pools, st.integers(1, 70), st.integers(1, 25))
def test_every_change_is_in_its_shard_in_order_and_whole(pools: list[Any], shards: int, most: int) -> None:
    expected: dict[int, dict[Any, list[Any]]] = {}
    changes, before = [], 0
    known = {pool for pool, some in pools for _, kind, _, (root, _, _) in some if kind in FILLS and root}
    for pool, some in pools:
        changes.append(changes_of(pool, some, before))
        for number, (block_hash, kind, size, (root, depth, adapter)) in enumerate(some):
            shard = (block_hash >> 32) * shards >> 32
            chain = (root, depth, ("", *LORAS)[adapter]) if kind in FILLS and pool in known else ()
            change = (pool, block_hash, kind, 1_000.0 + number, size, before, chain)
            expected.setdefault(shard, {}).setdefault(pool, []).append(change)
            before += size
    found = parts_of(changes, shards, most)
    assert not changes, "they are let go"
    assert found.keys() == expected.keys()
    for shard, parts in found.items():
        assert max(len(part.kinds) for part in parts) <= most
        of_pool = expected[shard]
        in_order = [pool for pool in dict.fromkeys(pool for pool, _ in pools) if pool in of_pool]
        assert told(parts) == [change for pool in in_order for change in of_pool[pool]]
        assert len(parts) == sum(pieces_of(of_pool[pool], most) for pool in in_order)


def test_long_rows_are_not_joined_and_say_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(7)
    changes, before = [], 0
    for length in (3, 40, 1, 1, 25, 9):
        rows = np.zeros(length, CHANGE)
        rows["hash"] = rng.integers(0, 2**64 - 1, length, dtype=np.uint64)
        rows["kind"] = rng.integers(FILLED, CLEARED + 1, length)
        rows["block_size"], rows["time"] = 16, 1_000.0 + np.arange(length)
        rows["stored"] = before + 16 * np.arange(length)
        rows["root"], rows["depth"] = rows["hash"], 1
        before += 16 * length
        changes += [Changes("gpu", 0, rows, loras=LORAS), Changes("cpu", 0, rows[:1], loras=LORAS)]
    joined = parts_of([*changes], 2, 100)
    whole = {shard: told(parts) for shard, parts in joined.items()}
    monkeypatch.setattr(module, "JOINED_BYTES", 20 * CHANGE.itemsize)
    few = parts_of(changes, 2, 100)
    assert {shard: sorted(told(parts)) for shard, parts in few.items()} == {
        shard: sorted(said) for shard, said in whole.items()
    }
    for shard, parts in few.items():
        for pool in (("gpu", 0), ("cpu", 0)):
            assert [one for one in told(parts) if one[0] == pool] == [
                one for one in whole[shard] if one[0] == pool
            ]
        assert len(parts) == len(joined[shard]) + 2, "3 + 40, 1 + 1 + 25, 9"
